// The offline solvers of profiles: compares prune curves with all possible allocations, and weights
// with their definition.
#include "precis/profile_solver.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "precis/profile.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;
using Catch::Matchers::Contains;

namespace {

using Worth = std::vector<std::vector<float>>;

std::vector<std::span<const float>> views(const Worth& worth) {
  return {worth.begin(), worth.end()};
}

Result<std::vector<float>> curves(const Worth& worth, std::uint32_t n, std::uint32_t p) {
  return prune_curves(views(worth), n, p);
}

Result<std::vector<float>> weights(const Worth& worth, double share) {
  return head_weights(views(worth), share);
}

// Random worth with ties. The values are integers, so that sums are exact. Within a head they fall
// on average, or have no trend. Heads differ in the size of their values.
Worth random_worth(std::uint32_t heads, std::uint32_t ranked, Rng& rng) {
  Worth worth(heads, std::vector<float>(ranked));
  for (auto& head : worth) {
    const std::uint32_t slope = pick(rng, 0, 3), most = pick(rng, 1, 40);
    for (std::uint32_t i = 0; i < ranked; ++i) {
      head[i] = static_cast<float>(pick(rng, 0, most) + slope * (ranked - i));
    }
  }
  return worth;
}

// Entries pruned of every head at a row of the table.
std::vector<std::uint32_t> pruned_at(const std::vector<float>& table, std::size_t row,
                                     std::size_t heads, std::uint32_t n) {
  std::vector<std::uint32_t> pruned;
  for (std::size_t h = 0; h < heads; ++h) {
    pruned.push_back(static_cast<std::uint32_t>(std::lround(table[row * heads + h] * n)));
  }
  return pruned;
}

// A head's loss when it loses its last 0, 1, ... entries.
std::vector<double> losses(const std::vector<float>& head) {
  std::vector<double> sums{0};
  for (auto x = head.rbegin(); x != head.rend(); ++x) sums.push_back(sums.back() + *x);
  return sums;
}

// The lower convex hull at every point, as the lowest chord over it.
std::vector<double> hull(const std::vector<double>& loss) {
  std::vector<double> lowest = loss;
  for (std::size_t a = 0; a < loss.size(); ++a) {
    for (std::size_t b = a + 1; b < loss.size(); ++b) {
      for (std::size_t k = a; k <= b; ++k) {
        const double share = static_cast<double>(k - a) / static_cast<double>(b - a);
        lowest[k] = std::min(lowest[k], loss[a] + (loss[b] - loss[a]) * share);
      }
    }
  }
  return lowest;
}

// The least total loss for every number of pruned entries, over all allocations.
std::vector<double> best_of_all(const std::vector<std::vector<double>>& loss, std::size_t most) {
  std::vector<double> best{0};
  for (const auto& head : loss) {
    std::vector<double> more(best.size() + most, std::numeric_limits<double>::infinity());
    for (std::size_t total = 0; total < best.size(); ++total) {
      for (std::size_t k = 0; k <= most; ++k) {
        more[total + k] = std::min(more[total + k], best[total] + head[k]);
      }
    }
    best = std::move(more);
  }
  return best;
}

double sum_at(const std::vector<std::vector<double>>& loss,
              const std::vector<std::uint32_t>& pruned) {
  double sum = 0;
  for (std::size_t h = 0; h < loss.size(); ++h) sum += loss[h][pruned[h]];
  return sum;
}

// The nearest integer number of entries, halves upwards.
std::uint64_t percent_of(std::uint64_t percent, std::uint64_t all) {
  return (percent * all + 50) / 100;
}

}  // namespace

TEST_CASE("prune curves are the best of all allocations, for the hulls of what heads lose",
          "[kernels][profile]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t heads = pick(rng, 1, 5), n = pick(rng, 1, 14), p = pick(rng, 0, n);
    const Worth worth = random_worth(heads, n - p, rng);
    std::vector<std::vector<double>> raw, relaxed;
    for (const auto& head : worth) {
      raw.push_back(losses(head));
      relaxed.push_back(hull(raw.back()));
    }
    const auto least_raw = best_of_all(raw, n - p), least_relaxed = best_of_all(relaxed, n - p);
    const auto table = curves(worth, n, p).value();
    CAPTURE(round, heads, n, p, worth);
    for (std::uint32_t percent = 1; percent <= Profile::kCurveRows; ++percent) {
      const auto pruned = pruned_at(table, percent - 1, heads, n);
      const auto total = std::accumulate(pruned.begin(), pruned.end(), std::uint64_t{0});
      REQUIRE(total == std::min<std::uint64_t>(percent_of(percent, heads * n), heads * (n - p)));
      const double slack = 1e-9 * (1 + least_relaxed.back());
      REQUIRE(sum_at(relaxed, pruned) == Approx(least_relaxed[total]).margin(slack));
      // At most one head stops within a segment of its hull. Only that head's loss above its hull
      // separates the total loss from the optimum.
      int within = 0;
      double above = 0;
      for (std::uint32_t h = 0; h < heads; ++h) {
        const double over = raw[h][pruned[h]] - relaxed[h][pruned[h]];
        within += over > slack;
        above += over;
      }
      REQUIRE(within <= 1);
      REQUIRE(sum_at(raw, pruned) <= least_raw[total] + above + slack);
      if (within == 0) REQUIRE(sum_at(raw, pruned) == Approx(least_raw[total]).margin(slack));
    }
  }
}

TEST_CASE("every row of a curve is on target, none takes back, and one per cent stays",
          "[kernels][profile]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t heads = pick(rng, 1, 12), n = pick(rng, 1, 700);
    const std::uint32_t p = pick(rng, 0, std::min(n, 40u));
    const auto table = curves(random_worth(heads, n - p, rng), n, p).value();
    REQUIRE(table.size() == std::size_t{Profile::kCurveRows} * heads);
    const std::uint64_t stays = std::max<std::uint64_t>(percent_of(1, n), p);
    std::vector<std::uint32_t> before(heads);
    CAPTURE(round, heads, n, p);
    for (std::uint32_t percent = 1; percent <= Profile::kCurveRows; ++percent) {
      const auto pruned = pruned_at(table, percent - 1, heads, n);
      const auto total = std::accumulate(pruned.begin(), pruned.end(), std::uint64_t{0});
      REQUIRE(total ==
              std::min(percent_of(percent, std::uint64_t{heads} * n), heads * (n - stays)));
      for (std::uint32_t h = 0; h < heads; ++h) {
        REQUIRE(pruned[h] >= before[h]);
        REQUIRE(pruned[h] <= n - stays);
      }
      before = pruned;
    }
  }
}

TEST_CASE("a head keeps 1% whatever it is worth, and what it may not lose the others do",
          "[kernels][profile]") {
  Worth worth(2, std::vector<float>(300, 1.0f));
  worth[0].assign(300, 0.0f);
  const auto table = curves(worth, 300, 0).value();
  CHECK(pruned_at(table, 48, 2, 300) == std::vector<std::uint32_t>{294, 0});
  CHECK(pruned_at(table, 49, 2, 300) == std::vector<std::uint32_t>{297, 3});
  CHECK(pruned_at(table, 98, 2, 300) == std::vector<std::uint32_t>{297, 297});
  // More than 1% of the entries are protected.
  worth.assign(2, std::vector<float>(260, 1.0f));
  const auto windowed = curves(worth, 300, 40).value();
  CHECK(pruned_at(windowed, 85, 2, 300) == std::vector<std::uint32_t>{260, 256});
  CHECK(pruned_at(windowed, 98, 2, 300) == std::vector<std::uint32_t>{260, 260});
}

TEST_CASE("of equal rates the lower head loses first, a segment at a time", "[kernels][profile]") {
  // Heads 0 and 2 lose at a rate of 2 throughout; head 1 loses at 2 at its end, and at 9 before
  // that.
  const Worth worth{{1, 3, 1, 3}, {9, 9, 2, 2}, {2, 2, 2, 2}};
  const auto table = curves(worth, 4, 0).value();
  CHECK(pruned_at(table, 24, 3, 4) == std::vector<std::uint32_t>{3, 0, 0});
  CHECK(pruned_at(table, 49, 3, 4) == std::vector<std::uint32_t>{4, 2, 0});
  CHECK(pruned_at(table, 74, 3, 4) == std::vector<std::uint32_t>{4, 2, 3});
  CHECK(pruned_at(table, 91, 3, 4) == std::vector<std::uint32_t>{4, 3, 4});
}

TEST_CASE("permuting heads permutes their curves and weights", "[kernels][profile]") {
  Rng rng(9);  // no tie at the end of any row, which would go to the lower head
  for (int round = 0; round < 30; ++round) {
    const std::uint32_t heads = pick(rng, 2, 9), n = pick(rng, 20, 200), p = pick(rng, 0, 10);
    Worth worth(heads, std::vector<float>(n - p));
    for (auto& head : worth) {
      for (float& x : head) x = std::uniform_real_distribution<float>(0, 1)(rng);
    }
    std::vector<std::uint32_t> to(heads);
    std::iota(to.begin(), to.end(), 0u);
    std::shuffle(to.begin(), to.end(), rng);
    Worth moved(heads);
    for (std::uint32_t h = 0; h < heads; ++h) moved[to[h]] = worth[h];
    const auto table = curves(worth, n, p).value(), moved_table = curves(moved, n, p).value();
    const auto share = weights(worth, 0.2).value(), moved_share = weights(moved, 0.2).value();
    CAPTURE(round, heads, n, p);
    for (std::uint32_t h = 0; h < heads; ++h) {
      REQUIRE(moved_share[to[h]] == share[h]);
      for (std::uint32_t row = 0; row < Profile::kCurveRows; ++row) {
        REQUIRE(moved_table[row * heads + to[h]] == table[row * heads + h]);
      }
    }
  }
}

TEST_CASE("weights are each head's part of the best entries", "[kernels][profile]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 100; ++round) {
    Worth worth;
    for (std::uint32_t h = pick(rng, 1, 6); h > 0; --h) {
      worth.push_back(random_worth(1, pick(rng, 1, 50), rng).front());
    }
    const double share = pick(rng, 1, 100) / 100.0;
    struct Entry {
      float worth;
      std::size_t head;
    };
    std::vector<Entry> entries;
    for (std::size_t h = 0; h < worth.size(); ++h) {
      for (const float x : worth[h]) entries.push_back({x, h});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.worth > b.worth; });
    const auto best = std::max(1L, std::lround(share * static_cast<double>(entries.size())));
    std::vector<double> counts(worth.size());
    for (long i = 0; i < best; ++i) ++counts[entries[static_cast<std::size_t>(i)].head];
    const auto got = weights(worth, share).value();
    CAPTURE(round, share, worth);
    for (std::size_t h = 0; h < worth.size(); ++h) {
      REQUIRE(got[h] == static_cast<float>(counts[h] / static_cast<double>(worth[h].size())));
    }
  }
  CHECK(weights({{1, 1}, {1, 1}}, 0.5).value() == std::vector<float>{1, 0});
  CHECK(weights({{1, 5}, {3, 2}}, 0.01).value() == std::vector<float>{0.5f, 0});
  CHECK(weights({{1, 5}, {3}}, 1).value() == std::vector<float>{1, 1});
}

TEST_CASE("nothing to prune, or nothing at all beside the protected entries, is a table too",
          "[kernels][profile]") {
  CHECK(curves({{}, {}}, 36, 36).value() == std::vector<float>(99 * 2, 0.0f));
  const auto one = curves({{7}}, 1, 0).value();
  CHECK(one[48] == 0.0f);
  CHECK(one[49] == 1.0f);
  CHECK(one[98] == 1.0f);
}

TEST_CASE("worth that means nothing is refused by head and entry", "[kernels][profile]") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](const Result<std::vector<float>>& result) {
    CHECK(result.status().code() == StatusCode::kInvalidArgument);
    return result.status().message();
  };
  for (const float bad : {nan, inf, -inf, -1.0f, -1e-30f}) {
    CAPTURE(bad);
    CHECK_THAT(refused(curves({{1, 2}, {3, bad}}, 4, 2)), Contains("worth: head 1, entry 1 is "));
    CHECK_THAT(refused(weights({{bad, 2}, {3}}, 0.5)), Contains("worth: head 0, entry 0 is "));
  }
  CHECK_THAT(refused(curves({}, 4, 2)), Contains("worth: there are no heads"));
  CHECK_THAT(refused(weights({}, 0.5)), Contains("worth: there are no heads"));
  CHECK_THAT(refused(curves({{}}, 0, 0)), Contains("num_tokens is 0"));
  CHECK_THAT(refused(curves({{}}, 4, 5)),
             Contains("protected is 5, must be at most num_tokens, 4"));
  CHECK_THAT(refused(curves({{1, 2}, {1}}, 4, 2)),
             Contains("head 1 has 1 entries, must have 2, num_tokens - protected"));
  CHECK_THAT(refused(weights({{1}, {}}, 0.5)), Contains("head 1 has no entries"));
  for (const double share : {0.0, -0.5, 1.01, static_cast<double>(nan)}) {
    CHECK_THAT(refused(weights({{1}}, share)), Contains("share is "));
  }
}
