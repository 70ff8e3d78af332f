#include "cachesvc/trace/span_queue.h"

#include <catch2/catch.hpp>

#include "precis/limits.h"

namespace precis::trace {
namespace {

using std::chrono::seconds;

// The spans of a request with this many stages.
RequestSpans request(std::size_t stages) {
  RequestSpans spans;
  spans.stages.resize(stages);
  return spans;
}

std::size_t count(const std::vector<RequestSpans>& requests) {
  std::size_t spans = 0;
  for (const RequestSpans& each : requests) spans += each.count();
  return spans;
}

}  // namespace

TEST_CASE("the queue has as many spans as its limit, and takes the next when there is room",
          "[unit][trace]") {
  const SystemClock clock;
  SpanQueue queue(clock);
  std::size_t added = 0;
  while (queue.add(request(2))) added += 3;
  CHECK(added <= limits::kSpansWaitingMax);
  CHECK(added + 3 > limits::kSpansWaitingMax);
  const auto taken = queue.take(seconds(60), /*until_full=*/true);
  CHECK(count(taken) <= limits::kSpansPerPostMax);
  CHECK(count(taken) + 3 > limits::kSpansPerPostMax);
  for (std::size_t i = 0; i < taken.size(); ++i) REQUIRE(queue.add(request(2)));
  CHECK_FALSE(queue.add(request(2)));
}

TEST_CASE("a reader gets what there is once its time is over, and at once from a closed queue",
          "[unit][trace]") {
  const SystemClock clock;
  SpanQueue queue(clock);
  CHECK(queue.take(seconds(0), true).empty());
  REQUIRE(queue.add(request(4)));
  CHECK(count(queue.take(seconds(0), false)) == 5);
  REQUIRE(queue.add(request(0)));
  CHECK_FALSE(queue.closed());
  queue.close();
  CHECK(queue.closed());
  CHECK(count(queue.take(seconds(600), false)) == 1);
  CHECK(queue.take(seconds(600), true).empty());
}

}  // namespace precis::trace
