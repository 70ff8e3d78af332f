#include "cachesvc/trace/span_queue.h"

#include <utility>

#include "precis/limits.h"

namespace precis::trace {

bool SpanQueue::add(RequestSpans spans) {
  const std::size_t count = spans.count();
  std::unique_lock lock(mutex_);
  if (spans_ + count > limits::kSpansWaitingMax) return false;
  const bool was_full = spans_ >= limits::kSpansPerPostMax;
  spans_ += count;
  waiting_.push_back(std::move(spans));
  const bool is_full = spans_ >= limits::kSpansPerPostMax;
  lock.unlock();
  if (is_full && !was_full) changed_.notify_one();
  return true;
}

std::vector<RequestSpans> SpanQueue::take(std::chrono::seconds time, bool until_full) {
  std::unique_lock lock(mutex_);
  clock_.wait(changed_, lock, clock_.now() + time,
              [&] { return closed_ || (until_full && spans_ >= limits::kSpansPerPostMax); });
  std::vector<RequestSpans> taken;
  std::size_t count = 0;
  while (!waiting_.empty() && count + waiting_.front().count() <= limits::kSpansPerPostMax) {
    count += waiting_.front().count();
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  spans_ -= count;
  return taken;
}

void SpanQueue::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

bool SpanQueue::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace precis::trace
