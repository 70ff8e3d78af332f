#include "client/src/interrupt.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace precis {
namespace {

constexpr std::chrono::milliseconds kAskEvery{100};

// Never freed: threads may wait until the very end of the process.
std::atomic<const std::function<bool()>*> asked{nullptr};

// Per thread, whatever it waits for.
thread_local Interrupt::Time next_ask;

}  // namespace

void on_wait(std::function<bool()> is_interrupted) {
  asked = new std::function<bool()>(std::move(is_interrupted));
}

Interrupt::Time Interrupt::first() const {
  if (asked.load() == nullptr) return Time::max();
  // After a pause the thread's first wait does not ask at once: most waits are short.
  const Time now = clock_.now();
  if (now > next_ask + kAskEvery) next_ask = now + kAskEvery;
  return next_ask;
}

bool Interrupt::came() {
  if (!due()) return false;
  next_ = next_ask = clock_.now() + kAskEvery;
  return (*asked.load())();
}

bool Interrupt::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                     const std::function<bool()>& over) {
  for (;;) {
    if (clock_.wait(changed, lock, next_, over)) return true;
    lock.unlock();
    const bool stop = came();
    lock.lock();
    if (stop) return false;
  }
}

bool Interrupt::sleep(std::chrono::milliseconds time) {
  const Time end = clock_.now() + time;
  while (clock_.now() < end) {
    clock_.sleep(std::min(end, next_) - clock_.now());
    if (came()) return false;
  }
  return true;
}

}  // namespace precis
