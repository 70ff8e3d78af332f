// The source of time, threads and randomness. Product code takes them from here and reads no clock
// itself, so that the whole service also runs in the simulated time of one thread
// (tests/simulate).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"

namespace precis {

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const Clock& clock() const = 0;
  virtual std::unique_ptr<EventLoop> make_loop() = 0;
  // The names of its threads begin with `name`.
  virtual std::unique_ptr<Executor> make_executor(std::string name, unsigned threads) = 0;
  virtual std::uint64_t random() = 0;  // any thread
};

// The machine's clocks, Asio's loop and threads.
class MachineRuntime final : public Runtime {
 public:
  const Clock& clock() const override { return clock_; }
  std::unique_ptr<EventLoop> make_loop() override;
  std::unique_ptr<Executor> make_executor(std::string name, unsigned threads) override;
  std::uint64_t random() override;

 private:
  const SystemClock clock_{};
};

}  // namespace precis
