// Resources that connections share are bounded and shared fairly.
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
  CHECK_THAT(refused.message(), Catch::Contains("the reply has ") &&
                                    Catch::Contains("134217729 B") &&
                                    Catch::Contains("request less"));
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
  // A single connection gets half; the other half is kept for connections that come later.
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

namespace {

// Takes one thing at a time until it is refused. Returns the number taken.
int fill(Quota::Part& part, std::vector<Quota::Hold>& holds) {
  int count = 0;
  for (; count < 1000; ++count) {
    auto hold = Quota::take(part, 1);
    if (!hold.ok()) break;
    holds.push_back(std::move(*hold));
  }
  return count;
}

using Parts = std::vector<std::unique_ptr<Quota::Part>>;

int fill(const Parts& parts, std::vector<Quota::Hold>& holds) {
  int count = 0;
  for (const auto& part : parts) count += fill(*part, holds);
  return count;
}

Parts connections(Quota& quota, const Owner& owner, int count) {
  Parts parts;
  for (int i = 0; i < count; ++i) parts.push_back(std::make_unique<Quota::Part>(quota, owner));
  return parts;
}

}  // namespace

TEST_CASE("a tenant with a hundred connections leaves the others their share", "[unit][server]") {
  Quota quota("things", "max_things", 200, 7);
  quota.expect("many", 1);
  quota.expect("one", 1);
  const Parts many = connections(quota, {"many"}, 100);
  Quota::Part one(quota, {"one"});
  std::vector<Quota::Hold> holds;  // destroyed before their parts
  CHECK(fill(many, holds) == 100);
  const Status refused = Quota::take(*many.front(), 1).status();
  CHECK(refused.code() == StatusCode::kRejected);
  CHECK_THAT(refused.message(), Catch::Contains("tenant 'many' has 100 of 100 things") &&
                                    Catch::Contains("max_things"));
  // A tenant that connects now gets its share, although the other tenant was first.
  CHECK(fill(one, holds) == 50);
  holds.clear();
  CHECK(quota.used() == 0);
}

TEST_CASE("a tenant's share is by its weight", "[unit][server]") {
  Quota quota("things", "max_things", 160, 7);
  quota.expect("flood", 1);
  quota.expect("heavy", 2);
  quota.expect("light", 1);
  Quota::Part flood(quota, {"flood"}), heavy(quota, {"heavy", 2}), light(quota, {"light"});
  std::vector<Quota::Hold> holds;
  CHECK(fill(flood, holds) == 80);
  CHECK(fill(heavy, holds) == 40);
  CHECK(fill(light, holds) == 20);
}

TEST_CASE("weights that are configured anew count at once, and tenants that are gone no more",
          "[unit][server]") {
  Quota quota("things", "max_things", 160, 7);
  quota.expect_only({{"flood", "", ""}, {"heavy", "", ""}, {"gone", "", "", 5}});
  Quota::Part flood(quota, {"flood"}), heavy(quota, {"heavy"});
  quota.expect_only({{"flood", "", ""}, {"heavy", "", "", 2}, {"light", "", ""}});
  Quota::Part light(quota, {"light"});
  std::vector<Quota::Hold> holds;
  CHECK(fill(flood, holds) == 80);
  CHECK(fill(heavy, holds) == 40);
  CHECK(fill(light, holds) == 20);
}

TEST_CASE("a tenant's own limit holds over its connections, also while nothing else is in use",
          "[unit][server]") {
  Quota quota("things", "max_things", 160, 7);
  quota.expect("small", 1);
  quota.limit_tenant("small", 2);
  Quota::Part one(quota, {"small"}), other(quota, {"small"});
  auto first = Quota::take(one, 1), second = Quota::take(other, 1);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(quota.used_by("small") == 2);
  const Status third = Quota::take(other, 1).status();
  CHECK(third.code() == StatusCode::kRejected);
  CHECK(third.retry_after_ms() == 7);
  CHECK_THAT(third.message(), Catch::Contains("tenant 'small' has 2 things, its own limit is 2"));
  quota.limit_tenant("small", 3);
  CHECK(Quota::take(other, 1).ok());
}

TEST_CASE("of a tenant's share a greedy connection leaves a part to the tenant's others",
          "[unit][server]") {
  Quota quota("things", "max_things", 400, 7);
  quota.expect("other", 1);
  Quota::Part greedy(quota, {"tenant"});
  const Parts modest = connections(quota, {"tenant"}, 4);
  std::vector<Quota::Hold> holds;
  CHECK(fill(greedy, holds) == 100);
  for (const auto& part : modest) CHECK(fill(*part, holds) == 20);
}

TEST_CASE("a tenant that nobody expects has a share while it is connected", "[unit][server]") {
  Quota quota("things", "max_things", 100, 7);
  Quota::Part stays(quota, {"stays"});
  const Parts more = connections(quota, {"stays"}, 9);
  std::vector<Quota::Hold> holds;
  {
    Quota::Part comes(quota, {"comes"});
    CHECK(fill(more, holds) + fill(stays, holds) <= 50);
    CHECK(fill(comes, holds) == 25);
    holds.clear();
  }
  CHECK(fill(stays, holds) == 50);
  CHECK(fill(more, holds) == 45);
}

}  // namespace precis
