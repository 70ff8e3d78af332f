#include "one_call.h"

#include <chrono>

#include "errors.h"
#include "gil.h"
#include "waits.h"

namespace precis::python {

namespace {

constexpr std::chrono::milliseconds kAskEvery{100};

}  // namespace

OneCall::In::In(OneCall& calls) : calls_(calls) {
  if (calls_.owner_.load() == std::this_thread::get_id()) {
    raise(Status::invalid(calls_.what_ +
                          ": this thread is in a call of it already; what interrupts a call, a "
                          "signal's handler say, cannot make another"));
  }
  if (!calls_.mutex_.try_lock()) {
    const bool entered = without_gil([this] {
      while (!calls_.mutex_.try_lock_for(kAskEvery)) {
        if (is_interrupted()) return false;
      }
      return true;
    });
    if (!entered) {
      raise(Status::canceled(calls_.what_ +
                             ": interrupted while it waited for another thread's call of it"));
    }
  }
  calls_.owner_.store(std::this_thread::get_id());
}

OneCall::In::~In() {
  calls_.owner_.store({});
  calls_.mutex_.unlock();
}

}  // namespace precis::python
