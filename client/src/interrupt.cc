#include "client/src/interrupt.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace precis {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAskEvery{100};

// Never freed: threads may wait until the very end of the process.
std::atomic<const std::function<bool()>*> asked{nullptr};

// Per thread, whatever it waits for.
thread_local steady_clock::time_point next_ask;

}  // namespace

void on_wait(std::function<bool()> is_interrupted) {
  asked = new std::function<bool()>(std::move(is_interrupted));
}

Interrupt::Time Interrupt::first() {
  if (asked.load() == nullptr) return Time::max();
  // After a pause the thread's first wait does not ask at once: most waits are short.
  const Time now = steady_clock::now();
  if (now > next_ask + kAskEvery) next_ask = now + kAskEvery;
  return next_ask;
}

bool Interrupt::came() {
  if (!due()) return false;
  next_ = next_ask = steady_clock::now() + kAskEvery;
  return (*asked.load())();
}

bool Interrupt::sleep(std::chrono::milliseconds time) {
  const Time end = steady_clock::now() + time;
  while (steady_clock::now() < end) {
    std::this_thread::sleep_until(std::min(end, next_));
    if (came()) return false;
  }
  return true;
}

}  // namespace precis
