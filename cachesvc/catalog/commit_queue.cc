#include "cachesvc/catalog/commit_queue.h"

#include <utility>

namespace precis {

bool CommitQueue::leads(Commit& commit) {
  std::unique_lock lock(mutex_);
  waiting_.push_back(&commit);
  changed_.wait(lock, [&] { return commit.done || !led_; });
  if (commit.done) return false;
  led_ = true;
  return true;
}

std::vector<Commit*> CommitQueue::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void CommitQueue::done(std::span<Commit* const> commits) {
  std::lock_guard lock(mutex_);
  for (Commit* const commit : commits) commit->done = true;
  led_ = false;
  changed_.notify_all();
}

std::size_t CommitQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace precis
