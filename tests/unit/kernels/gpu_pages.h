// Pages in device memory, with a host copy of their original bytes.
#pragma once

#include <utility>
#include <vector>

#include "tests/unit/client/random_pages.h"
#include "tests/unit/kernels/gpu_memory.h"

namespace precis::kernels::test {

struct DevicePages {
  DevicePages(Gpu& gpu, precis::testing::RandomPages made)
      : pages(std::move(made)), on_device(gpu.upload(pages.memory)) {
    pages.rows.data = on_device.data();
    pages.rows.space = MemorySpace::kDevice;
  }
  std::vector<std::byte> now(Gpu& gpu) const { return gpu.download<std::byte>(on_device); }

  precis::testing::RandomPages pages;
  DeviceBuffer on_device;
};

}  // namespace precis::kernels::test
