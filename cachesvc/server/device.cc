#include "cachesvc/server/device.h"

#include <string>
#include <utility>

#include "precis/device_choice.h"

namespace precis {

Result<std::unique_ptr<kernels::Backend>> choose_backend(const Config& config, MutableBytes memory,
                                                         Log& log) {
  PRECIS_ASSIGN(const DeviceChoice choice, DeviceChoice::parse(config.device));
  const unsigned threads = config.resolved_compute_threads();
  std::unique_ptr<kernels::Backend> backend;
  Status no_gpu;
  if (choice.kind != DeviceChoice::Kind::kCpu) {
    auto cuda = kernels::make_cuda_backend(choice.ordinal, threads, [&log](const Status& why) {
      const bool one = why.code() == StatusCode::kOutOfSpace;
      log.warn(one ? "a layer that the GPU has no room for is compressed on the CPU"
                   : "the GPU failed, compressing on the CPU until the next start",
               {{"status", why.to_string()}});
    });
    no_gpu = cuda.status();
    if (cuda.ok()) backend = std::move(cuda).value();
  }
  if (backend == nullptr) {
    if (choice.kind == DeviceChoice::Kind::kCuda) {
      return no_gpu.with_context("device " + config.device + " (auto falls back to the CPU)");
    }
    backend = kernels::make_cpu_backend(threads);
    if (!no_gpu.ok()) log.info("compressing on the CPU", {{"no_gpu", no_gpu.to_string()}});
  }
  const Status pinned = backend->expect_memory(memory);
  if (!pinned.ok()) {
    log.warn("memory is not pinned, copies to the GPU will be slow",
             {{"status", pinned.to_string()}});
  }
  return backend;
}

}  // namespace precis
