#include "cachesvc/store/tidier.h"

#include <pthread.h>

#include <utility>

namespace precis {

void Tidier::start(std::function<bool(const std::stop_token&)> tidy) {
  tidy_ = std::move(tidy);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Tidier::stop() {
  thread_.request_stop();
  thread_.join();
}

void Tidier::wake(bool failed) {
  {
    const std::lock_guard lock(mutex_);
    if (untidy_ && (failing_ || !failed)) return;  // already awake
    untidy_ = true;
    failing_ = failing_ || failed;
  }
  wanted_.notify_one();
}

void Tidier::there_is_room() {
  const std::lock_guard lock(mutex_);
  failing_ = false;
}

void Tidier::run(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "tidier");
  std::unique_lock lock(mutex_);
  while (wanted_.wait(lock, stop, [this] { return untidy_; })) {
    wanted_.wait_for(lock, stop, delay_, [this] { return failing_; });
    untidy_ = false;
    lock.unlock();
    while (!stop.stop_requested() && tidy_(stop)) {
    }
    ++passes_;
    lock.lock();
  }
}

}  // namespace precis
