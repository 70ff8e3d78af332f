// A machine in simulated time: threads, executors and event loops that all run on the calling
// thread, one at a time, in an order that the seed decides. Simulated threads are fibers; they
// switch only where they wait. If none can run, time advances to the next timer or deadline.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "cachesvc/base/runtime.h"
#include "precis/status.h"

namespace precis::simulate {

class Simulation final : public Runtime {
 public:
  explicit Simulation(std::uint64_t seed);
  ~Simulation() override;
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  const Clock& clock() const override;
  std::unique_ptr<EventLoop> make_loop() override;
  std::unique_ptr<Executor> make_executor(std::string name, unsigned threads) override;
  std::uint64_t random() override { return random_(); }
  // In [0, below).
  std::uint64_t random(std::uint64_t below) { return random_() % below; }
  bool chance(double share) { return static_cast<double>(random(1'000'000)) < share * 1e6; }

  // Starts a thread. Returns its number.
  std::uint64_t start(std::string name, std::function<void()> body);
  // Runs until this thread and all that it waits for have ended. kInternal names the threads that
  // wait for ever, or those that run after `steps_max` steps or `time_max` of simulated time.
  Status run(std::uint64_t thread, std::uint64_t steps_max, std::chrono::nanoseconds time_max);
  std::uint64_t steps() const { return steps_; }

  // For this machine's parts. The calling thread waits until over() is true or the time has come.
  using Over = std::function<bool()>;
  void wait(const Over& over, Clock::Time until = Clock::Time::max());
  std::uint64_t current() const { return current_ ? current_->number : 0; }
  Clock::Time now() const { return now_; }
  // Calls fn at that time, in the scheduler. Returns the key for cancel().
  using TimerKey = std::pair<Clock::Time, std::uint64_t>;
  TimerKey at(Clock::Time time, std::function<void()> fn);
  void cancel(const TimerKey& timer) { timers_.erase(timer); }

 private:
  struct Thread {
    std::uint64_t number;
    std::string name;
    boost::context::fiber fiber;
    const Over* over = nullptr;  // null if it may run
    Clock::Time until = Clock::Time::max();
    bool ended = false;
  };
  bool may_run(const Thread& thread) const;
  bool step();  // false if nothing can ever run
  std::string waiting() const;

  class SimulatedClock;
  const std::unique_ptr<SimulatedClock> clock_;
  std::mt19937_64 random_;
  Clock::Time now_;
  std::uint64_t steps_ = 0, last_ = 0;
  std::list<Thread> threads_;
  Thread* current_ = nullptr;
  boost::context::fiber scheduler_;
  std::map<TimerKey, std::function<void()>> timers_;
};

}  // namespace precis::simulate
