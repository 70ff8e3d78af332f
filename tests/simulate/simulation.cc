#include "tests/simulate/simulation.h"

#include <boost/context/fixedsize_stack.hpp>
#include <deque>
#include <utility>
#include <vector>

namespace precis::simulate {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kStackBytes = 512u << 10;
// A step takes up to this long, so that time advances while threads work.
constexpr std::uint64_t kStepNsMax = 20'000;
constexpr std::chrono::hours kUnixStart{24 * 365 * 50};

class SimulatedTimer final : public EventLoop::Timer {
 public:
  SimulatedTimer(Simulation& machine, const Simulation::TimerKey& key, std::shared_ptr<bool> alive)
      : machine_(machine), key_(key), alive_(std::move(alive)) {}
  ~SimulatedTimer() override {
    *alive_ = false;
    machine_.cancel(key_);
  }

 private:
  Simulation& machine_;
  const Simulation::TimerKey key_;
  const std::shared_ptr<bool> alive_;
};

// Its handlers run on the thread that calls run(). It has no descriptors.
class SimulatedLoop final : public EventLoop {
 public:
  explicit SimulatedLoop(Simulation& machine) : machine_(machine) {}
  const Clock& clock() const override { return machine_.clock(); }
  void run() override {
    thread_ = machine_.current();
    while (!stopping_) {
      machine_.wait([this] { return !state_->queue.empty(); });
      const auto fn = std::move(state_->queue.front());
      state_->queue.pop_front();
      fn();
      ++rounds_;
    }
    thread_ = 0;
  }
  void run_lent() override { run(); }
  bool drive(const std::function<void()>&, const std::function<bool()>&) override { return false; }
  void stop() override {
    post([this] { stopping_ = true; });
  }
  void post(std::function<void()> fn) override { state_->queue.push_back(std::move(fn)); }
  bool on_loop_thread() const override { return thread_ != 0 && machine_.current() == thread_; }
  std::unique_ptr<Timer> after(nanoseconds delay, std::function<void()> fn) override {
    auto alive = std::make_shared<bool>(true);
    const auto key = machine_.at(machine_.now() + std::max(delay, nanoseconds{0}),
                                 [state = std::weak_ptr(state_), alive, fn = std::move(fn)] {
                                   const auto open = state.lock();
                                   if (!open) return;
                                   open->queue.push_back([alive, fn] {
                                     if (*alive) fn();
                                   });
                                 });
    return std::make_unique<SimulatedTimer>(machine_, key, std::move(alive));
  }
  std::unique_ptr<Watch> watch_readable(int, std::function<void()>) override { return none(); }
  std::unique_ptr<SocketWatch> watch_socket(int, std::function<void()>,
                                            std::function<void()>) override {
    PRECIS_CHECK(false);
    return nullptr;
  }
  std::unique_ptr<Watch> add_poller(Poller) override { return none(); }
  void spin_for(nanoseconds) override {}
  void kick() override {}
  void rest() override {}
  void expect() override {}
  std::uint64_t rounds() const override { return rounds_; }

 private:
  struct State {
    std::deque<std::function<void()>> queue;
  };
  static std::unique_ptr<Watch> none() {
    PRECIS_CHECK(false);  // a simulated machine has no descriptors
    return nullptr;
  }

  Simulation& machine_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // timers outlive the loop
  std::uint64_t thread_ = 0, rounds_ = 0;
  bool stopping_ = false;
};

class SimulatedExecutor final : public Executor {
 public:
  SimulatedExecutor(Simulation& machine, const std::string& name, unsigned threads)
      : machine_(machine), running_(threads) {
    for (unsigned i = 0; i < threads; ++i) {
      machine.start(name, [this] { serve(); });
    }
  }
  ~SimulatedExecutor() override {
    stopping_ = true;
    machine_.wait([this] { return running_ == 0; });
  }
  void post(std::function<void()> fn) override { queue_.push_back(std::move(fn)); }
  std::size_t queued() const override { return queue_.size(); }

 private:
  void serve() {
    for (;;) {
      machine_.wait([this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) break;
      const auto fn = std::move(queue_.front());
      queue_.pop_front();
      fn();
    }
    --running_;
  }

  Simulation& machine_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  unsigned running_;
};

}  // namespace

class Simulation::SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(Simulation& machine) : machine_(machine) {}
  std::uint64_t unix_ms() const override {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
        kUnixStart + machine_.now_.time_since_epoch());
    return static_cast<std::uint64_t>(ms.count());
  }
  std::uint64_t monotonic_ns() const override {
    return static_cast<std::uint64_t>(nanoseconds(machine_.now_.time_since_epoch()).count());
  }
  void sleep(nanoseconds time) const override {
    machine_.wait([] { return false; }, machine_.now_ + time);
  }
  // Simulated threads switch only where they wait, so over() needs no lock.
  bool wait(std::condition_variable&, std::unique_lock<std::mutex>& lock, Time until,
            const std::function<bool()>& over) const override {
    lock.unlock();
    machine_.wait(over, until);
    lock.lock();
    return over();
  }

 private:
  Simulation& machine_;
};

Simulation::Simulation(std::uint64_t seed)
    : clock_(std::make_unique<SimulatedClock>(*this)), random_(seed), now_(std::chrono::hours(1)) {}
Simulation::~Simulation() = default;

const Clock& Simulation::clock() const { return *clock_; }
std::unique_ptr<EventLoop> Simulation::make_loop() {
  return std::make_unique<SimulatedLoop>(*this);
}
std::unique_ptr<Executor> Simulation::make_executor(std::string name, unsigned threads) {
  return std::make_unique<SimulatedExecutor>(*this, name, threads);
}

std::uint64_t Simulation::start(std::string name, std::function<void()> body) {
  Thread& thread = threads_.emplace_back();
  thread.number = ++last_;
  thread.name = std::move(name);
  thread.fiber = boost::context::fiber(
      std::allocator_arg, boost::context::fixedsize_stack(kStackBytes),
      [this, &thread, body = std::move(body)](boost::context::fiber&& scheduler) mutable {
        scheduler_ = std::move(scheduler);
        body();
        body = nullptr;
        thread.ended = true;
        return std::move(scheduler_);
      });
  return thread.number;
}

void Simulation::wait(const Over& over, Clock::Time until) {
  PRECIS_CHECK(current_ != nullptr);  // only simulated threads wait
  Thread& self = *current_;
  self.over = &over;
  self.until = until;
  scheduler_ = std::move(scheduler_).resume();
  self.over = nullptr;
}

Simulation::TimerKey Simulation::at(Clock::Time time, std::function<void()> fn) {
  const TimerKey key{time, ++last_};
  timers_.emplace(key, std::move(fn));
  return key;
}

bool Simulation::may_run(const Thread& thread) const {
  return thread.over == nullptr || now_ >= thread.until || (*thread.over)();
}

bool Simulation::step() {
  for (;;) {
    while (!timers_.empty() && timers_.begin()->first.first <= now_) {
      const auto fn = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      fn();
    }
    std::vector<std::list<Thread>::iterator> ready;
    Clock::Time next = timers_.empty() ? Clock::Time::max() : timers_.begin()->first.first;
    for (auto at = threads_.begin(); at != threads_.end(); ++at) {
      if (may_run(*at)) ready.push_back(at);
      next = std::min(next, at->until);
    }
    if (ready.empty()) {
      if (next == Clock::Time::max()) return false;
      now_ = next;
      continue;
    }
    const auto chosen = ready[random(ready.size())];
    now_ += nanoseconds(random(kStepNsMax));
    ++steps_;
    chosen->until = Clock::Time::max();
    current_ = &*chosen;
    chosen->fiber = std::move(chosen->fiber).resume();
    current_ = nullptr;
    if (chosen->ended) threads_.erase(chosen);
    return true;
  }
}

std::string Simulation::waiting() const {
  std::map<std::string, int> names;
  for (const Thread& thread : threads_) ++names[thread.name];
  std::string text;
  for (const auto& [name, count] : names) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  }
  return text;
}

Status Simulation::run(std::uint64_t thread, std::uint64_t steps_max, nanoseconds time_max) {
  const auto runs = [&] {
    return std::ranges::any_of(threads_, [&](const Thread& t) { return t.number == thread; });
  };
  const Clock::Time end = now_ + time_max;
  while (runs()) {
    if (!step()) return Status::internal("nothing can run any more; these wait: " + waiting());
    if (steps_ > steps_max || now_ > end) {
      return Status::internal("no end after " + std::to_string(steps_) +
                              " steps; these run or wait: " + waiting());
    }
  }
  return {};
}

}  // namespace precis::simulate
