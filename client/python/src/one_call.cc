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
                          ": this thread is already in one of its calls; code that interrupts a "
                          "call, for example a signal handler, cannot make another call"));
  }
  if (calls_.try_enter()) return;
  if (!without_gil([this] { return calls_.enter_without_gil(); })) {
    raise(
        Status::canceled(calls_.what_ + ": interrupted while it waited for another thread's call"));
  }
}

OneCall::In::~In() { calls_.leave(); }

bool OneCall::enter_without_gil() {
  if (owner_.load() == std::this_thread::get_id()) return false;
  while (!mutex_.try_lock_for(kAskEvery)) {
    if (is_interrupted()) return false;
  }
  owner_.store(std::this_thread::get_id());
  return true;
}

bool OneCall::try_enter() {
  if (owner_.load() == std::this_thread::get_id() || !mutex_.try_lock()) return false;
  owner_.store(std::this_thread::get_id());
  return true;
}

void OneCall::leave() {
  owner_.store({});
  mutex_.unlock();
}

}  // namespace precis::python
