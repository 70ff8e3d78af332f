#include "cachesvc/base/runtime.h"

#include <random>
#include <utility>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/thread_executor.h"

namespace precis {

std::unique_ptr<EventLoop> MachineRuntime::make_loop() { return std::make_unique<AsioLoop>(); }

std::unique_ptr<Executor> MachineRuntime::make_executor(std::string name, unsigned threads) {
  return std::make_unique<ThreadExecutor>(std::move(name), threads);
}

std::uint64_t MachineRuntime::random() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace precis
