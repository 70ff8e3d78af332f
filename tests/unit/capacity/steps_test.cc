// Stored segments take too much space: these tests check what is given up, and in which order.
#include "cachesvc/capacity/steps.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <map>
#include <numeric>
#include <random>

namespace precis {
namespace {

const std::vector<double> kLadder = {0.3, 0.2, 0.1};

// A segment that keeps `keep` of 1000 entries of 10 B, with a header of 100 B.
Candidate segment(double keep, double idle_s, std::uint64_t hits = 0) {
  Candidate c;
  c.full_entries = 1000;
  c.entries = static_cast<std::uint64_t>(keep * 1000);
  c.entry_bytes = 10;
  c.stored_bytes = 100 + c.entries * 10;
  c.prefill_seconds = 1;
  c.use = {.hits = hits, .age_s = 1e5, .idle_s = idle_s};
  return c;
}

std::vector<CapacityStep> value_steps(const std::vector<Candidate>& all, std::uint64_t bytes) {
  return choose_steps(all, kLadder, CapacityPolicy::kValue, bytes);
}

}  // namespace

TEST_CASE("nothing is given up if nothing must be freed", "[unit][capacity]") {
  CHECK(value_steps({segment(1, 10)}, 0).empty());
  CHECK(value_steps({}, 100).empty());
}

TEST_CASE("quality goes before presence", "[unit][capacity]") {
  // Both of two equal segments are trimmed before one is dropped.
  const auto steps = value_steps({segment(0.3, 10), segment(0.3, 10)}, 3500);
  REQUIRE(steps.size() == 2);
  for (const CapacityStep& step : steps) {
    CHECK(step.keep == 0.1);
    CHECK(step.freed_bytes == 2000);
  }
}

TEST_CASE("a segment that has all that later queries see counts as whole", "[unit][capacity]") {
  Candidate whole = segment(0.3, 10);
  whole.visible_share = 0.3;
  // The other one has lost a part of its worth already, so the same trim costs less.
  for (const std::uint32_t at : {0u, 1u}) {
    std::vector<Candidate> all = {segment(0.3, 10), segment(0.3, 10)};
    all[at] = whole;
    const auto steps = value_steps(all, 500);
    REQUIRE(steps.size() == 1);
    CHECK(steps[0] == CapacityStep{1 - at, 0.2, 1000});
  }
}

TEST_CASE("a trim frees an eighth of a segment, or steps of the ladder are skipped",
          "[unit][capacity]") {
  // A step to 0.3 would free 200 B of 3300.
  const auto steps = value_steps({segment(0.32, 10)}, 200);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0] == CapacityStep{0, 0.2, 1200});
  Candidate floor = segment(0.32, 10);
  floor.least_entries = 300;  // no step frees more than those 200 B
  const auto dropped = value_steps({floor}, 200);
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0] == CapacityStep{0, 0, 3300});
}

TEST_CASE("what was not used for long is dropped before what is used is trimmed",
          "[unit][capacity]") {
  const auto steps = value_steps({segment(0.3, 1, 1000), segment(0.3, 1e7)}, 3000);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0] == CapacityStep{1, 0, 3100});
}

TEST_CASE("a session that lives keeps its segments longer", "[unit][capacity]") {
  std::vector<Candidate> all = {segment(0.3, 100), segment(0.3, 100)};
  all[0].use.in_session = true;
  const auto steps = value_steps(all, 500);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].candidate == 1);
}

TEST_CASE("children are dropped before their parents, and what is held stays", "[unit][capacity]") {
  std::vector<Candidate> all = {segment(0.1, 1e6), segment(0.1, 10), segment(0.1, 1e7)};
  all[1].parent = 0;
  all[2].held = true;
  const auto steps = value_steps(all, 1u << 20);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0] == CapacityStep{1, 0, 1100});
  CHECK(steps[1] == CapacityStep{0, 0, 1100});
}

TEST_CASE("what can't be hit goes first, without being read", "[unit][capacity]") {
  std::vector<Candidate> all = {segment(0.3, 1e7), segment(0.3, 1)};
  all[1].trimmable = false;
  all[1].prefill_seconds = 0;
  const auto steps = value_steps(all, 100);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0] == CapacityStep{1, 0, 3100});
}

TEST_CASE("a segment that its recipe keeps whole is dropped, not trimmed", "[unit][capacity]") {
  std::vector<Candidate> all = {segment(0.3, 10), segment(0.3, 10)};
  for (Candidate& c : all) c.least_entries = 250;
  const auto steps = value_steps(all, 1200);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].freed_bytes == 500);  // 50 entries
  CHECK(steps[1].keep == 0);
}

TEST_CASE("lru drops what was used least recently, and trims nothing", "[unit][capacity]") {
  const auto steps = choose_steps(std::vector{segment(1, 5, 1000), segment(1, 7, 9), segment(1, 6)},
                                  kLadder, CapacityPolicy::kLru, 10'101);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].candidate == 1);
  CHECK(steps[1].candidate == 2);
  CHECK(steps[0].keep == 0);
}

TEST_CASE("steps can be carried out in their order and free what they say", "[unit][capacity]") {
  std::mt19937 random(20261126);
  for (int round = 0; round < 300; ++round) {
    const auto below = [&](std::uint32_t n) {
      return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
    };
    std::vector<Candidate> all(1 + below(60));
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      all[i] = segment(0.05 * (1 + below(20)), below(100'000), below(50));
      if (i > 0 && below(3) > 0) all[i].parent = below(i);
      all[i].held = below(10) == 0;
    }
    const auto policy = below(4) == 0 ? CapacityPolicy::kLru : CapacityPolicy::kValue;
    const std::uint64_t wanted = below(200'000);
    const auto steps = choose_steps(all, kLadder, policy, wanted);
    CAPTURE(round, all.size(), wanted);

    std::map<std::uint32_t, std::uint32_t> children;
    for (const Candidate& c : all) {
      if (c.parent) ++children[*c.parent];
    }
    std::uint64_t freed = 0;
    std::vector<bool> changed(all.size());
    for (const CapacityStep& step : steps) {
      const Candidate& c = all[step.candidate];
      REQUIRE_FALSE(c.held);
      REQUIRE_FALSE(changed[step.candidate]);
      changed[step.candidate] = true;
      if (step.keep > 0) {
        const auto left = static_cast<std::uint64_t>(step.keep * 1000);
        REQUIRE(std::ranges::count(kLadder, step.keep) == 1);
        REQUIRE(left < c.entries);
        REQUIRE(step.freed_bytes == (c.entries - left) * c.entry_bytes);
        REQUIRE(policy == CapacityPolicy::kValue);
      } else {
        REQUIRE(children[step.candidate] == 0);
        REQUIRE(step.freed_bytes == c.stored_bytes);
        if (c.parent) --children[*c.parent];
      }
      freed += step.freed_bytes;
    }
    if (freed >= wanted) continue;
    // All that may go is gone: each remaining segment is held, or is an ancestor of a held one.
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      const bool dropped = std::ranges::any_of(
          steps, [&](const CapacityStep& step) { return step.candidate == i && step.keep == 0; });
      REQUIRE((dropped || all[i].held || children[i] > 0));
    }
  }
}

TEST_CASE("reuse is expected less with idle time, and more with hits", "[unit][capacity]") {
  const Use use{.hits = 3, .age_s = 1000, .idle_s = 100};
  Use other = use;
  other.idle_s = 200;
  CHECK(reuse_rate(other) < reuse_rate(use));
  other = use;
  other.hits = 4;
  CHECK(reuse_rate(other) > reuse_rate(use));
  other = use;
  other.in_session = true;
  CHECK(reuse_rate(other) > reuse_rate(use));
  Use over = use;
  over.idle_s = other.idle_s = 3600;  // the session counts as over, although nobody closed it
  CHECK(reuse_rate(other) == reuse_rate(over));
}

TEST_CASE("priority doubles the rate every ten points, and never makes it 0 or endless",
          "[unit][capacity]") {
  Use use{.hits = 3, .age_s = 1000, .idle_s = 100};
  const double usual = reuse_rate(use);
  double before = 0;
  for (std::uint32_t priority = 0; priority <= limits::kPriorityMax; ++priority) {
    use.priority = priority;
    const double rate = reuse_rate(use);
    CHECK(rate > before);
    before = rate;
  }
  CHECK(before == 32 * usual);
  use.priority = 0;
  CHECK(reuse_rate(use) == usual / 32);
  CHECK(reuse_rate(without_hints(use)) == usual);
}

TEST_CASE("a segment decays after its TTL, and a hit restores it", "[unit][capacity]") {
  Use use{.hits = 3, .age_s = 1000, .idle_s = 100, .ttl_s = 100};
  CHECK(reuse_rate(use) == reuse_rate(without_hints(use)));
  use.idle_s = 300;
  CHECK(reuse_rate(use) == reuse_rate(without_hints(use)) / 4);
  double before = reuse_rate(use);
  for (; use.idle_s < 1e15; use.idle_s *= 1.5) {  // it never reaches 0
    CHECK(reuse_rate(use) <= before);
    CHECK(reuse_rate(use) > 0);
    before = reuse_rate(use);
  }
  use.idle_s = 0;
  ++use.hits;
  CHECK(reuse_rate(use) == reuse_rate(without_hints(use)));
}

TEST_CASE("what is expected counts as used now, whatever its idle time", "[unit][capacity]") {
  Use use{.hits = 0, .age_s = 1e6, .idle_s = 1e6, .ttl_s = 10};
  const double idle = reuse_rate(use);
  use.expected = true;
  CHECK(reuse_rate(use) == reuse_rate(Use{}));
  CHECK(reuse_rate(use) > 1000 * idle);
  use = {.hits = 1000, .age_s = 100, .expected = true};
  CHECK(reuse_rate(use) == reuse_rate(without_hints(use)));
}

TEST_CASE("priority 0 goes first and 100 last of equals, and all of them can go",
          "[unit][capacity]") {
  std::vector<Candidate> all(3, segment(0.3, 10));
  all[0].use.priority = 100;
  all[2].use.priority = 0;
  const std::uint64_t bytes = all[0].stored_bytes;
  const auto dropped = [&](std::uint64_t wanted) {
    std::vector<std::uint32_t> order;
    for (const CapacityStep& step : choose_steps(all, {}, CapacityPolicy::kValue, wanted)) {
      order.push_back(step.candidate);
    }
    return order;
  };
  CHECK(dropped(1) == std::vector<std::uint32_t>{2});
  CHECK(dropped(3 * bytes) == std::vector<std::uint32_t>{2, 1, 0});
}

TEST_CASE("what is said to be cheap to compute again goes first of equals", "[unit][capacity]") {
  std::vector<Candidate> all(4, segment(0.3, 10));
  const double estimate = all[0].prefill_seconds = all[1].prefill_seconds = all[2].prefill_seconds =
      all[3].prefill_seconds = 0.5;
  all[0].said_seconds = 3 * estimate;
  all[1].said_seconds = 2 * estimate;
  all[3].said_seconds = estimate / 2;
  std::vector<std::uint32_t> order;
  for (const CapacityStep& step :
       choose_steps(all, {}, CapacityPolicy::kValue, 4 * all[0].stored_bytes)) {
    order.push_back(step.candidate);
  }
  CHECK(order == std::vector<std::uint32_t>{3, 2, 1, 0});
}

TEST_CASE("what a client says of a prefill does as much as priority at most", "[unit][capacity]") {
  CHECK(prefill_worth(0, 2) == 2);  // the client says nothing
  CHECK(prefill_worth(3, 2) == 3);
  CHECK(prefill_worth(1e9, 2) == 2 * 32);
  CHECK(prefill_worth(1e-9, 2) == 2.0 / 32);
  CHECK(prefill_worth(1e9, 0) == 0);  // out of service
  const Use usual{.hits = 3, .age_s = 1000, .idle_s = 100};
  Use first = usual;
  first.priority = limits::kPriorityMax;
  CHECK(reuse_rate(first) / reuse_rate(usual) == prefill_worth(1e9, 1));
}

TEST_CASE("hints of one owner take no space of another", "[unit][capacity]") {
  std::mt19937 random(20261127);
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  const auto of_owner = [](const std::vector<Candidate>& all,
                           const std::vector<CapacityStep>& steps, std::uint32_t owner) {
    std::vector<CapacityStep> own;
    std::ranges::copy_if(steps, std::back_inserter(own), [&](const CapacityStep& step) {
      return all[step.candidate].owner == owner;
    });
    return own;
  };
  const auto bytes_of = [](const std::vector<CapacityStep>& steps) {
    return std::accumulate(
        steps.begin(), steps.end(), std::uint64_t{0},
        [](std::uint64_t sum, const CapacityStep& step) { return sum + step.freed_bytes; });
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Candidate> plain(1 + below(40));
    for (std::uint32_t i = 0; i < plain.size(); ++i) {
      plain[i] = segment(0.05 * (1 + below(20)), below(100'000), below(50));
      plain[i].owner = below(3);
      const std::uint32_t parent = below(i + 1);
      if (parent < i && plain[parent].owner == plain[i].owner) plain[i].parent = parent;
      plain[i].held = below(10) == 0;
    }
    // Owner 0 gives no hints; owner 1 gives any; owner 2 wants to keep everything.
    std::vector<Candidate> hinted = plain;
    for (Candidate& c : hinted) {
      if (c.owner == 1) c.use.priority = below(limits::kPriorityMax + 1);
      if (c.owner == 1) c.use.ttl_s = below(1000);
      if (c.owner == 2) c.use.priority = limits::kPriorityMax;
      if (c.owner == 2) c.use.expected = true;
      if (c.owner > 0) c.said_seconds = below(100'000);
    }
    const std::uint64_t wanted = below(200'000);
    const auto fair = value_steps(plain, wanted), steps = value_steps(hinted, wanted);
    CAPTURE(round, plain.size(), wanted);
    std::vector<CapacityStep> same = of_owner(hinted, steps, 0);
    REQUIRE(same == of_owner(plain, fair, 0));
    for (const std::uint32_t owner : {1u, 2u}) {
      const auto own = of_owner(hinted, steps, owner);
      const std::uint64_t share = bytes_of(of_owner(plain, fair, owner)), freed = bytes_of(own);
      REQUIRE(freed >= share);
      std::uint64_t largest = 0;
      for (const CapacityStep& step : own) largest = std::max(largest, step.freed_bytes);
      REQUIRE((share == 0 ? freed == 0 : freed < share + largest));
    }
  }
}

TEST_CASE("each rung of a ladder costs more worth than the one before, and a drop the most",
          "[unit][capacity]") {
  CHECK(quality_worth(1) == 1);
  CHECK(quality_worth(0) == 0);
  double loss_before = 0;
  for (const double keep : {0.5, 0.25, 0.125, 0.0625}) {
    const double loss_a_share = (quality_worth(2 * keep) - quality_worth(keep)) / keep;
    CHECK(loss_a_share > loss_before);
    loss_before = loss_a_share;
  }
}

TEST_CASE("a ladder that does not descend is refused, and policies have names",
          "[unit][capacity]") {
  const auto refused = [](std::vector<double> ladder) { return !check_trim_ladder(ladder).ok(); };
  CHECK_FALSE(refused({}));
  CHECK_FALSE(refused({0.3, 0.1}));
  CHECK(refused({0.3, 0.3}));
  CHECK(refused({0.1, 0.3}));
  CHECK(refused({1.0}));
  CHECK(refused({0.3, 0.0}));
  CHECK(refused(std::vector<double>(kTrimLadderMax + 1, 0.5)));
  CHECK(*parse_capacity_policy("lru") == CapacityPolicy::kLru);
  CHECK_THAT(parse_capacity_policy("fifo").status().message(), Catch::Contains("value or lru"));
}

}  // namespace precis
