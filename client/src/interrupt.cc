#include "client/src/interrupt.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace precis {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAskEvery{100};

std::function<bool()>& asked() {
  static std::function<bool()> ask;
  return ask;
}
std::atomic<bool> is_set{false};

}  // namespace

void on_wait(std::function<bool()> is_interrupted) {
  asked() = std::move(is_interrupted);
  is_set = true;
}

Interrupt::Time Interrupt::first() {
  return is_set ? steady_clock::now() + kAskEvery : Time::max();
}

bool Interrupt::came() {
  if (!due()) return false;
  next_ = steady_clock::now() + kAskEvery;
  return asked()();
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
