#include "cachesvc/store/compactor.h"

namespace precis {

// Files may be sparse and the disk full.
void Compactor::start(std::function<bool(const std::stop_token&)> compact) {
  compact_ = std::move(compact);
  wake(/*failed=*/true);
}

void Compactor::stop() {
  stop_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    wanted_.notify_one();
  }
  thread_.reset();
}

void Compactor::wake(bool failed) {
  const std::lock_guard lock(mutex_);
  if (stop_.stop_requested()) return;  // values that are freed later are found at the next opening
  pending_ = true;
  if (failed && !std::exchange(failing_, true)) wanted_.notify_one();
  if (!std::exchange(running_, true)) thread_->post([this] { run(); });
}

void Compactor::space_available() {
  const std::lock_guard lock(mutex_);
  failing_ = false;
}

void Compactor::run() {
  const std::stop_token stop = stop_.get_token();
  std::unique_lock lock(mutex_);
  while (pending_ && !stop.stop_requested()) {
    clock_.wait(wanted_, lock, clock_.now() + delay_,
                [&] { return failing_ || stop.stop_requested(); });
    pending_ = false;
    lock.unlock();
    while (!stop.stop_requested() && compact_(stop)) {
    }
    ++passes_;
    lock.lock();
  }
  running_ = false;
}

}  // namespace precis
