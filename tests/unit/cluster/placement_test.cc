#include "precis/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "precis/shards.h"

namespace precis::cluster {
namespace {

using Owners = std::vector<std::uint32_t>;

Owners nobody() { return Owners(kShards, kNobody); }

std::vector<std::uint32_t> counted(std::size_t members, const Owners& owners) {
  std::vector<std::uint32_t> counts(members);
  for (const std::uint32_t owner : owners) {
    if (owner != kNobody) ++counts[owner];
  }
  return counts;
}

std::size_t differing(const Owners& a, const Owners& b) {
  std::size_t count = 0;
  for (std::size_t s = 0; s < a.size(); ++s) count += a[s] != b[s];
  return count;
}

// Checks that all shards are owned in proportion to the weights, and that no more moved than had
// to.
void check(const std::vector<Member>& members, const Owners& before, const Owners& after) {
  double weights = 0;
  for (const Member& member : members) weights += member.weight;
  const auto had = counted(members.size(), before), has = counted(members.size(), after);
  std::size_t needed = static_cast<std::size_t>(std::ranges::count(before, kNobody));
  for (std::size_t m = 0; m < members.size(); ++m) {
    const double share = kShards * members[m].weight / weights;
    CHECK(std::abs(has[m] - share) < 1);
    if (had[m] > has[m]) needed += had[m] - has[m];
  }
  CHECK(std::ranges::count(after, kNobody) == 0);
  CHECK(differing(before, after) == needed);
}

std::vector<Member> equal_members(std::size_t count) {
  std::vector<Member> members;
  std::mt19937_64 random(count);
  while (members.size() < count) members.push_back({random(), 1});
  return members;
}

TEST_CASE("the first node owns all shards, and none remain without any node") {
  CHECK(place_shards(equal_members(1), nobody()) == Owners(kShards, 0));
  CHECK(place_shards({}, nobody()) == nobody());
  const std::vector<Member> draining = {{1, 0}, {2, 0}};
  CHECK(place_shards(draining, nobody()) == nobody());
}

TEST_CASE("shards stay where they are while all nodes drain") {
  const std::vector<Member> draining = {{1, 0}, {2, 0}};
  Owners owners(kShards, 0);
  std::fill_n(owners.begin(), 100, 1);
  CHECK(place_shards(draining, owners) == owners);
}

TEST_CASE("members own shards by weight, and each change moves no more than it must") {
  std::mt19937_64 random(Catch::rngSeed());
  std::vector<Member> members;
  Owners owners = nobody();
  for (int step = 0; step < 60; ++step) {
    INFO("step " << step << " of seed " << Catch::rngSeed());
    const auto action = random() % 4;
    if (members.size() < 3 || action < 2) {
      members.push_back({random(), static_cast<std::uint32_t>(1 + random() % 8)});
    } else if (action == 2) {
      members[random() % members.size()].weight = static_cast<std::uint32_t>(1 + random() % 8);
    } else {
      const auto gone = static_cast<std::uint32_t>(random() % members.size());
      members.erase(members.begin() + gone);
      for (std::uint32_t& owner : owners) {
        if (owner == gone) {
          owner = kNobody;
        } else if (owner != kNobody && owner > gone) {
          --owner;
        }
      }
    }
    Owners after = place_shards(members, owners);
    check(members, owners, after);
    owners = std::move(after);
  }
}

TEST_CASE("at most 1/n of the shards move when a node joins n others") {
  for (const std::size_t n : {1, 2, 3, 10, 100, 500, 1000}) {
    auto members = equal_members(n + 1);
    const std::span<const Member> old(members.data(), n);
    const Owners before = place_shards(old, nobody());
    const Owners after = place_shards(members, before);
    INFO(n << " nodes");
    CHECK(differing(before, after) <= kShards / n);
    const auto counts = counted(n + 1, after);
    CHECK(*std::ranges::max_element(counts) - *std::ranges::min_element(counts) <= 1);
  }
}

TEST_CASE("a node that leaves and returns gets back most of its shards") {
  const auto members = equal_members(20);
  const Owners before = place_shards(members, nobody());
  Owners without = before;
  std::ranges::replace(without, 19U, kNobody);
  without = place_shards(std::span(members).first(19), without);
  const Owners after = place_shards(members, without);
  std::size_t had = 0, same = 0;
  for (std::size_t s = 0; s < kShards; ++s) {
    had += before[s] == 19;
    same += before[s] == 19 && after[s] == 19;
  }
  CHECK(same * 2 > had);  // by chance it would be a twentieth
}

TEST_CASE("the order of the members does not matter") {
  std::vector<Member> members = equal_members(17);
  for (std::size_t m = 0; m < members.size(); ++m) {
    members[m].weight = static_cast<std::uint32_t>(1 + m % 3);
  }
  const Owners owners = place_shards(members, nobody());
  std::vector<Member> reversed(members.rbegin(), members.rend());
  const Owners other = place_shards(reversed, nobody());
  for (std::size_t s = 0; s < kShards; ++s) REQUIRE(owners[s] == 16 - other[s]);
}

TEST_CASE("a draining node gives away all that it owns") {
  auto members = equal_members(4);
  const Owners before = place_shards(members, nobody());
  members[2].weight = 0;
  const Owners after = place_shards(members, before);
  CHECK(counted(4, after)[2] == 0);
  check(members, before, after);
}

}  // namespace
}  // namespace precis::cluster
