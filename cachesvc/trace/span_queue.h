// The spans that wait to be sent. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/server/tracer.h"

namespace precis::trace {

class SpanQueue {
 public:
  // `clock` must outlive the queue.
  explicit SpanQueue(const Clock& clock) : clock_(clock) {}

  // Returns false, and takes nothing, if the queue would have more than limits::kSpansWaitingMax
  // spans.
  bool add(RequestSpans spans);
  // [blocking] Waits for `time`, or until close(). With `until_full` it also ends when there are
  // limits::kSpansPerPostMax spans. Returns the oldest requests, with at most so many spans.
  std::vector<RequestSpans> take(std::chrono::seconds time, bool until_full);
  // From now on take() does not wait.
  void close();
  bool closed() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestSpans> waiting_;
  std::size_t spans_ = 0;
  bool closed_ = false;
};

}  // namespace precis::trace
