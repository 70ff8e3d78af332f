// A client of a fake server that moves rows to and from pages on CUDA devices.
#pragma once

#include <memory>

#include "precis/page_mover.h"
#include "tests/unit/client/fake_server.h"

namespace precis::testing {

inline std::shared_ptr<Client> connect_with_devices(FakeServer& server) {
  ConnectOptions options;
  options.retry = false;
  options.page_mover = kernels::make_cuda_page_mover;
  return server.connect(options).value();
}

}  // namespace precis::testing
