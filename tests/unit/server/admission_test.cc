// What connections share is bounded, and fairly.
#include "cachesvc/server/admission.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "precis/limits.h"

namespace precis {

TEST_CASE("a reply that is too large is the service's, and says to ask for less",
          "[unit][server]") {
  CHECK(check_reply_size(limits::kMessageBytesMax) == Status());
  const Status refused = check_reply_size(limits::kMessageBytesMax + 1);
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(refused.message(), Catch::Contains("the service's reply is ") &&
                                    Catch::Contains("134217729 B") &&
                                    Catch::Contains("ask for less"));
}

TEST_CASE("past its limit a quota is spent, names it, and says when to come back",
          "[unit][server]") {
  Quota quota("things", "max_things", 4, 7);
  Quota::Part one(quota);
  std::vector<Quota::Hold> holds;
  for (int i = 0; i < 4; ++i) {
    auto hold = Quota::take(one, 1);
    if (hold.ok()) holds.push_back(std::move(*hold));
  }
  // One that is alone has half of it: the other half is for those who come.
  CHECK(holds.size() == 2);
  Quota::Part two(quota);
  auto other = Quota::take(two, 2);
  REQUIRE(other.ok());
  const Status spent = Quota::take(two, 1).status();
  CHECK(spent.code() == StatusCode::kRejected);
  CHECK(spent.retry_after_ms() == 7);
  CHECK_THAT(spent.message(), Catch::Contains("4 things") && Catch::Contains("max_things"));
  holds.clear();
  CHECK(quota.used() == 2);
  CHECK(Quota::take(one, 2).ok());
}

TEST_CASE("a greedy connection leaves room for those with less than their share",
          "[unit][server]") {
  Quota quota("things", "max_things", 100, 7);
  Quota::Part greedy(quota);
  std::vector<std::unique_ptr<Quota::Part>> modest;
  for (int i = 0; i < 4; ++i) modest.push_back(std::make_unique<Quota::Part>(quota));
  std::vector<Quota::Hold> holds;
  const auto fill = [&](Quota::Part& part) {
    int count = 0;
    for (; count < 200; ++count) {
      auto hold = Quota::take(part, 1);
      if (!hold.ok()) break;
      holds.push_back(std::move(*hold));
    }
    return count;
  };
  CHECK(fill(greedy) == 50);
  for (const auto& part : modest) CHECK(fill(*part) == 10);
}

TEST_CASE("what is alone is let in at any size", "[unit][server]") {
  Quota quota("bytes", "max_bytes", 100, 7);
  Quota::Part one(quota);
  const auto large = Quota::take(one, 1000);
  CHECK(large.ok());
  CHECK_FALSE(Quota::take(one, 1).ok());
}

}  // namespace precis
