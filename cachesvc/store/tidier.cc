#include "cachesvc/store/tidier.h"

namespace precis {

// Files may be sparse and the disk full.
void Tidier::start(std::function<bool(const std::stop_token&)> tidy) {
  tidy_ = std::move(tidy);
  wake(/*failed=*/true);
}

void Tidier::stop() {
  stop_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    wanted_.notify_one();
  }
  thread_.reset();
}

void Tidier::wake(bool failed) {
  const std::lock_guard lock(mutex_);
  if (stop_.stop_requested()) return;  // values that are freed later are found at the next opening
  untidy_ = true;
  if (failed && !std::exchange(failing_, true)) wanted_.notify_one();
  if (!std::exchange(running_, true)) thread_->post([this] { run(); });
}

void Tidier::there_is_room() {
  const std::lock_guard lock(mutex_);
  failing_ = false;
}

void Tidier::run() {
  const std::stop_token stop = stop_.get_token();
  std::unique_lock lock(mutex_);
  while (untidy_ && !stop.stop_requested()) {
    clock_.wait(wanted_, lock, clock_.now() + delay_,
                [&] { return failing_ || stop.stop_requested(); });
    untidy_ = false;
    lock.unlock();
    while (!stop.stop_requested() && tidy_(stop)) {
    }
    ++passes_;
    lock.lock();
  }
  running_ = false;
}

}  // namespace precis
