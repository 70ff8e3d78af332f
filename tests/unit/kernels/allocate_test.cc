// Stage allocate and the joiner for layers that take turns: seats, guarantees, blends.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "precis/joiner.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

struct Layer {
  LayerInput input;
  LayerScores scores;
  RetentionOrders orders;
};

// The kept token indices and seats of a layer, [num_kv_heads][count].
struct Kept {
  std::vector<std::vector<std::uint32_t>> kept, seats;
  std::vector<std::uint32_t> counts() const {
    std::vector<std::uint32_t> counts;
    for (const auto& head : kept) counts.push_back(static_cast<std::uint32_t>(head.size()));
    return counts;
  }
};

Recipe ada(AdaMode mode, std::uint32_t alpha_ppm) {
  Recipe r;
  r.heads = HeadAllocator::kAda;
  r.ada_mode = mode;
  r.ada_alpha_ppm = alpha_ppm;
  return r;
}

Layer random_layer(Recipe& recipe, Rng& rng) {
  const std::uint32_t heads = pick(rng, 1, 5), n = pick(rng, 1, 40), num_layers = pick(rng, 1, 4);
  recipe.sinks = pick(rng, 0, 4);
  recipe.recent = pick(rng, 0, 4);
  Layer layer;
  layer.input = sizes_only(heads, n, pick(rng, 0, num_layers - 1), num_layers);
  LayerShape shape;
  shape.num_kv_heads = heads;
  shape.num_tokens = n;
  shape.head_dim = 1;
  shape.external = true;
  layer.scores.scores = make_layer(shape, rng).scores;
  layer.orders = reference_orders(recipe, layer.input, layer.scores);
  return layer;
}

Kept plan_of(const Recipe& recipe, const Layer& layer, std::uint64_t entries) {
  static const CpuStages cpu(1);
  const LayerInput& in = layer.input;
  auto joiner = Joiner::make(recipe, {in.num_layers, in.num_kv_heads(), in.num_tokens(), in.begin},
                             entries, nullptr);
  REQUIRE(joiner.ok());
  LayerTurns turns;
  const Status s = cpu.allocate(recipe, in, layer.scores, layer.orders,
                                (*joiner)->slots_wanted(in.layer), turns);
  REQUIRE(s == Status{});
  (*joiner)->add(in.layer, std::move(turns));
  Kept plan;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const auto& order = layer.orders.order[h];
    plan.kept.emplace_back(order.begin(), order.begin() + (*joiner)->counts(in.layer)[h]);
  }
  plan.seats = (*joiner)->seats(in.layer);
  return plan;
}

std::uint64_t total(const Kept& plan) {
  const auto counts = plan.counts();
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// Counts of the flat top-`slots` of the ranked entries.
std::vector<std::uint64_t> flat_counts(const Layer& layer, std::uint64_t slots) {
  Recipe flat = ada(AdaMode::kGuaranteeExclWindow, 0);
  const std::uint64_t p = layer.orders.protected_count * layer.orders.order.size();
  std::vector<std::uint64_t> counts(layer.orders.order.size());
  const auto heads =
      reference_slots(flat, layer.orders, layer.scores.scores, layer.input.num_tokens(), p + slots);
  for (std::uint64_t i = p; i < heads.size(); ++i) ++counts[heads[i]];
  return counts;
}

}  // namespace

TEST_CASE("uniform heads and layers take turns, the layer turning fastest", "[kernels][allocate]") {
  Recipe recipe;
  Layer layer{sizes_only(2, 5, 1, 3), {std::vector<float>(10), {}, 0}, {}};
  layer.orders = reference_orders(recipe, layer.input, layer.scores);
  const Kept plan = plan_of(recipe, layer, 14);  // seats 2, 5, 8, 11, 14 are this layer's
  CHECK(plan.seats == std::vector<std::vector<std::uint32_t>>{{2, 8, 14}, {5, 11}});
  CHECK(plan.kept == std::vector<std::vector<std::uint32_t>>{{0, 1, 2}, {0, 1}});
  CHECK(total(plan_of(recipe, layer, 1)) == 0);  // seat 1 is layer 0's
}

TEST_CASE("the guarantee comes first in every step, then the best remaining",
          "[kernels][allocate]") {
  // Head 0 has every good score; head 1 gets an entry only when floor(0.4 * b) rises: b = 3, 5.
  Recipe recipe = ada(AdaMode::kGuaranteeExclWindow, 400'000);
  Layer layer{sizes_only(2, 10), {std::vector<float>(20), {}, 0}, {}};
  for (int t = 0; t < 10; ++t) layer.scores.scores[t] = static_cast<float>(100 - t);
  for (int t = 0; t < 10; ++t) layer.scores.scores[10 + t] = static_cast<float>(10 - t);
  layer.orders = reference_orders(recipe, layer.input, layer.scores);
  const Kept plan = plan_of(recipe, layer, 10);
  CHECK(plan.seats == std::vector<std::vector<std::uint32_t>>{{1, 2, 3, 4, 6, 7, 8, 10}, {5, 9}});
}

TEST_CASE("orders equal their definition, seat for seat, at every budget", "[kernels][allocate]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 400; ++round) {
    Recipe recipe;
    if (pick(rng, 0, 3) > 0) {
      recipe = ada(pick(rng, 0, 1) ? AdaMode::kGuaranteeExclWindow : AdaMode::kGuaranteeInclWindow,
                   pick(rng, 0, 10) * 100'000);
    }
    const Layer layer = random_layer(recipe, rng);
    const LayerInput& in = layer.input;
    const std::uint64_t all = std::uint64_t{in.num_layers} * in.num_kv_heads() * in.num_tokens();
    const std::uint64_t entries = std::uniform_int_distribution<std::uint64_t>(0, all + 3)(rng);
    CAPTURE(round, recipe.ada_alpha_ppm, static_cast<int>(recipe.ada_mode), entries, in.layer,
            in.num_layers, in.num_tokens(), layer.orders.protected_count);
    const Kept plan = plan_of(recipe, layer, entries);
    Kept expected;
    expected.kept.resize(in.num_kv_heads());
    expected.seats.resize(in.num_kv_heads());
    const auto slots =
        reference_slots(recipe, layer.orders, layer.scores.scores, in.num_tokens(), all);
    for (std::uint64_t i = 0; i < slots.size(); ++i) {
      const std::uint64_t seat = i * in.num_layers + in.layer + 1;
      if (seat > entries) break;
      auto& kept = expected.kept[slots[i]];
      kept.push_back(layer.orders.order[slots[i]][kept.size()]);
      expected.seats[slots[i]].push_back(static_cast<std::uint32_t>(seat));
    }
    REQUIRE(plan.kept == expected.kept);
    REQUIRE(plan.seats == expected.seats);
  }
}

TEST_CASE("a guarantee of everything is uniform, and a guarantee of nothing is flat",
          "[kernels][allocate]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const AdaMode mode = GENERATE(AdaMode::kGuaranteeExclWindow, AdaMode::kGuaranteeInclWindow);
  for (int round = 0; round < 100; ++round) {
    Recipe recipe = ada(mode, 1'000'000);
    const Layer layer = random_layer(recipe, rng);
    const std::uint32_t heads = layer.input.num_kv_heads(), n = layer.input.num_tokens();
    const std::uint64_t entries = layer.input.num_layers * pick(rng, 0, heads * n);
    Recipe uniform = recipe;
    uniform.heads = HeadAllocator::kUniform;
    REQUIRE(plan_of(recipe, layer, entries).seats == plan_of(uniform, layer, entries).seats);

    recipe.ada_alpha_ppm = 0;
    const Kept flat = plan_of(recipe, layer, entries);
    const std::uint64_t p = layer.orders.protected_count;
    if (total(flat) < p * heads) continue;
    const auto expected = flat_counts(layer, total(flat) - p * heads);
    for (std::uint32_t h = 0; h < heads; ++h) REQUIRE(flat.kept[h].size() == p + expected[h]);
  }
}

TEST_CASE("a kvpress guarantee keeps the reference's set at its budget", "[kernels][allocate]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 100; ++round) {
    Recipe recipe = ada(AdaMode::kGuaranteeInclWindow, 200'000);
    recipe.count_rule = CountRule::kKvpressDouble;
    Layer layer = random_layer(recipe, rng);
    const std::uint32_t heads = layer.input.num_kv_heads(), n = layer.input.num_tokens();
    const std::uint32_t p = layer.orders.protected_count;
    const std::uint32_t kept = pick(rng, std::max(1u, p), n);  // per head on average
    const Kept plan = plan_of(recipe, layer, std::uint64_t{layer.input.num_layers} * heads * kept);
    CHECK(plan.seats.empty());
    // kvpress: max(1, int(kept * 0.2)) are guaranteed per head, the rest are the layer's best by
    // score.
    const std::uint32_t sure = std::max(p, std::max(1u, static_cast<std::uint32_t>(kept * 0.2)));
    std::vector<std::uint32_t> counts(heads, std::min(sure, n));
    std::uint32_t left = heads * kept - std::accumulate(counts.begin(), counts.end(), 0u);
    for (; left > 0; --left) {
      std::uint32_t best = heads;
      for (std::uint32_t h = 0; h < heads; ++h) {
        if (counts[h] == n) continue;
        const auto score = [&](std::uint32_t g) {
          return layer.scores.scores[g * n + layer.orders.order[g][counts[g]]];
        };
        if (best == heads || compare_scores(score(h), score(best)) < 0) best = h;
      }
      ++counts[best];
    }
    REQUIRE(plan.counts() == counts);
  }
}

TEST_CASE("a blend's counts are its shares within one entry, and their sum is exact",
          "[kernels][allocate]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const AdaMode mode = GENERATE(AdaMode::kPaperBlend, AdaMode::kRepoBlend);
  for (int round = 0; round < 200; ++round) {
    Recipe recipe = ada(mode, pick(rng, 0, 10) * 100'000);
    const Layer layer = random_layer(recipe, rng);
    const std::uint32_t heads = layer.input.num_kv_heads(), n = layer.input.num_tokens();
    const std::uint64_t share = pick(rng, 0, heads * n);
    const Kept plan = plan_of(recipe, layer, share * layer.input.num_layers);
    CHECK(plan.seats.empty());
    REQUIRE(total(plan) == share);
    const std::uint64_t p = layer.orders.protected_count;
    if (share < p * heads) continue;
    const std::uint64_t ranked = share - p * heads;
    const auto flat = flat_counts(layer, ranked);
    const double alpha = recipe.ada_alpha_ppm / 1e6;
    const double adaptive = mode == AdaMode::kPaperBlend ? alpha : 1 - alpha;
    for (std::uint32_t h = 0; h < heads; ++h) {
      const auto average = static_cast<double>(ranked / heads);
      const double exact = adaptive * static_cast<double>(flat[h]) + (1 - adaptive) * average;
      CAPTURE(round, h, exact, recipe.ada_alpha_ppm, ranked, heads);
      REQUIRE(plan.kept[h].size() <= n);
      REQUIRE(std::fabs(static_cast<double>(plan.kept[h].size() - p) - exact) <= 2.5);
    }
    if (adaptive == 1) {
      for (std::uint32_t h = 0; h < heads; ++h) REQUIRE(plan.kept[h].size() == p + flat[h]);
    }
    if (adaptive == 0) {
      const auto counts = plan.counts();
      const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
      REQUIRE(*high - *low <= 1);
    }
  }
}

TEST_CASE("no slots are no turns, and lists of no ranks where layers compete",
          "[kernels][allocate]") {
  Rng rng(1);
  const CpuStages cpu(1);
  for (const auto heads : {HeadAllocator::kUniform, HeadAllocator::kFlat, HeadAllocator::kAda}) {
    for (const auto layers : {LayerAllocator::kUniform, LayerAllocator::kGlobalFlat}) {
      Recipe recipe = ada(AdaMode::kRepoBlend, 500'000);
      recipe.heads = heads;
      recipe.layers = layers;
      const Layer layer = random_layer(recipe, rng);
      CAPTURE(canonical_recipe(recipe), layer.orders.order.size());
      LayerTurns turns;
      REQUIRE(cpu.allocate(recipe, layer.input, layer.scores, layer.orders, 0, turns).ok());
      CHECK(turns.heads.empty());
      const bool compete = layers == LayerAllocator::kGlobalFlat;
      CHECK(turns.ranks.size() == (compete ? layer.orders.order.size() : 0));
      for (const auto& ranks : turns.ranks) CHECK(ranks.empty());
      CHECK(total(plan_of(recipe, layer, 0)) == 0);
    }
  }
}

TEST_CASE("a segment with more seats than 32 bits number is refused", "[kernels][allocate]") {
  const auto joiner = Joiner::make(Recipe{}, {1u << 30, 1, 8, 0}, std::uint64_t{8} << 30, nullptr);
  CHECK(joiner.status().code() == StatusCode::kInvalidArgument);
}
