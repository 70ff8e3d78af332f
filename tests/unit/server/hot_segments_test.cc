// Which segments are served so much that other nodes should serve them too.
#include "cachesvc/server/hot_segments.h"

#include <catch2/catch.hpp>

namespace {

using namespace precis;

class SetClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return now_ns / 1'000'000; }
  std::uint64_t monotonic_ns() const override { return now_ns; }
  void pass_ms(std::uint64_t ms) { now_ns += ms * 1'000'000; }
  std::uint64_t now_ns = 1'000'000'000'000;
};

SegmentId id_of(std::uint8_t number) {
  SegmentId id;
  id.bytes[0] = number;
  return id;
}

}  // namespace

TEST_CASE("a segment is hot while much of it is served, and some seconds longer", "[server]") {
  SetClock clock;
  HotSegments hot(clock, 1000);
  const SegmentId one = id_of(1), other = id_of(2);
  hot.served(one, 1000);
  CHECK_FALSE(hot.is_hot(one));
  clock.pass_ms(2000);  // the next second counts anew
  hot.served(one, 1000);
  CHECK_FALSE(hot.is_hot(one));
  hot.served(one, 1);
  CHECK(hot.is_hot(one));
  CHECK_FALSE(hot.is_hot(other));
  // Once other nodes serve most reads of the segment, a lower rate keeps it hot here.
  for (int second = 0; second < 30; ++second) {
    clock.pass_ms(1100);
    hot.served(one, 200);
    CHECK(hot.is_hot(one));
  }
  for (int second = 0; second < 9; ++second) {
    clock.pass_ms(1100);
    hot.served(one, 100);
  }
  CHECK(hot.is_hot(one));
  clock.pass_ms(1100);
  CHECK_FALSE(hot.is_hot(one));
}

TEST_CASE("with a limit of 0 nothing is hot", "[server]") {
  SetClock clock;
  HotSegments hot(clock, 0);
  hot.served(id_of(1), 1'000'000'000);
  CHECK_FALSE(hot.is_hot(id_of(1)));
}
