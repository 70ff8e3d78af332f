// Failed snapshots of logs in S3 are counted and reported.
#include "cachesvc/server/snapshot_problems.h"

#include <catch2/catch.hpp>

namespace {

using namespace precis;

class SetClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return now_ns / 1'000'000; }
  std::uint64_t monotonic_ns() const override { return now_ns; }
  void pass(std::chrono::nanoseconds time) { now_ns += static_cast<std::uint64_t>(time.count()); }
  std::uint64_t now_ns = 1'000'000'000'000;
};

}  // namespace

TEST_CASE("each failure of a snapshot is counted, and one a minute is in the log", "[server]") {
  SetClock clock;
  Log log(Log::Level::kOff);
  SnapshotProblems problems(log, clock);
  CHECK_FALSE(problems.note("log/07", Status()));
  CHECK(problems.count() == 0);
  const Status failure = Status::unavailable("no answer");
  CHECK(problems.note("log/07", failure));
  CHECK_FALSE(problems.note("log/08", failure));
  CHECK_FALSE(problems.note("log/08", Status()));
  clock.pass(SnapshotProblems::kTellEvery);
  CHECK(problems.note("log/08", failure));
  CHECK_FALSE(problems.note("log/08", failure));
  CHECK(problems.count() == 4);
}
