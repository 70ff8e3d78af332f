// Stage select: the retention order of every head.
#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/common/isa.h"
#include "kernels/select/gather_keys.h"
#include "kernels/select/select.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

RetentionOrders orders_of(const Recipe& recipe, const LayerInput& input,
                          const LayerScores& scores) {
  ThreadPool pool(2);
  RetentionOrders orders;
  const std::uint64_t all = std::uint64_t{input.num_kv_heads()} * input.num_tokens();
  REQUIRE(select_cpu({pool, detect_isa()}, recipe, input, scores, all, orders).ok());
  return orders;
}

RetentionOrders orders_of(const Recipe& recipe, const LayerInput& input, std::vector<float> scores,
                          std::vector<float> second = {}) {
  return orders_of(recipe, input, LayerScores{std::move(scores), std::move(second), 0});
}

Recipe with(Selector selector) {
  Recipe recipe;
  recipe.selector = selector;
  return recipe;
}

}  // namespace

TEST_CASE("select orders protected first, then by score, ties to the lower position, NaN last",
          "[kernels][select]") {
  Recipe recipe;
  recipe.sinks = 2;
  recipe.recent = 2;
  const std::vector<float> scores = {9, 9, -0.0f, NAN, 1, 0.0f, -INFINITY, 1, NAN, 5, 5};
  const auto orders = orders_of(recipe, sizes_only(1, 11), scores);
  CHECK(orders.protected_count == 4);
  CHECK(orders.order[0] == std::vector<std::uint32_t>{0, 1, 10, 9, 4, 7, 2, 5, 6, 3, 8});
}

TEST_CASE("sinks are counted from the path's first token", "[kernels][select]") {
  Recipe recipe;
  recipe.sinks = 4;
  recipe.recent = 1;
  LayerInput input = sizes_only(1, 6);
  const std::vector<float> scores = {0, 1, 2, 3, 4, 5};
  input.begin = 3;
  CHECK(orders_of(recipe, input, scores).order[0] == std::vector<std::uint32_t>{0, 5, 4, 3, 2, 1});
  input.begin = 4;
  CHECK(orders_of(recipe, input, scores).order[0] == std::vector<std::uint32_t>{5, 4, 3, 2, 1, 0});
}

TEST_CASE("with fewer tokens than are protected, sinks stand first, then the most recent",
          "[kernels][select]") {
  Recipe recipe;
  recipe.sinks = 3;
  recipe.recent = 10;
  const auto orders = orders_of(recipe, sizes_only(1, 6), std::vector<float>(6));
  CHECK(orders.protected_count == 6);
  CHECK(orders.order[0] == std::vector<std::uint32_t>{0, 1, 2, 5, 4, 3});
}

TEST_CASE("partition_topk takes the best of every partition before any second best",
          "[kernels][select]") {
  Recipe recipe;
  recipe.scorer = Scorer::kLagkv;
  recipe.selector = Selector::kPartitionTopk;
  recipe.sinks = 1;
  recipe.lag = 3;
  recipe.protect_tail = true;
  // sink | 1 2 3 | 4 5 6 | tail: 7 8 9 and the remainder 10
  const std::vector<float> scores = {0, 2, 3, 1, 7, 7, 9, 0, 0, 0, 0};
  const auto orders = orders_of(recipe, sizes_only(1, 11), scores);
  CHECK(orders.protected_count == 5);
  CHECK(orders.order[0] == std::vector<std::uint32_t>{0, 10, 9, 8, 7, 2, 6, 1, 4, 3, 5});
}

TEST_CASE("layers that knorm skips are protected whole", "[kernels][select]") {
  Recipe recipe;
  recipe.scorer = Scorer::kKnorm;
  recipe.sinks = 1;
  recipe.skip_layers = 2;
  const std::vector<float> scores = {0, 1, 2, 3};
  const auto skipped = orders_of(recipe, sizes_only(1, 4, 1, 3), scores);
  CHECK(skipped.protected_count == 4);
  CHECK(skipped.order[0] == std::vector<std::uint32_t>{0, 3, 2, 1});
  CHECK(orders_of(recipe, sizes_only(1, 4, 2, 3), scores).protected_count == 1);
}

TEST_CASE("two_stage lets entries in by score and by the second score in turns",
          "[kernels][select]") {
  const Recipe recipe = with(Selector::kTwoStage);  // half of a head's entries by score
  const std::vector<float> scores = {6, 5, 4, 3, 2, 1}, second = {1, 2, 3, 4, 5, 6};
  // Budget 1: none by score, so token 5, the best second. Budget 2: token 0 by score, and 5. Budget
  // 3: token 0 by score, and 5 and 4.
  CHECK(orders_of(recipe, sizes_only(1, 6), scores, second).order[0] ==
        std::vector<std::uint32_t>{5, 0, 4, 1, 3, 2});
}

TEST_CASE("two_stage gives the place of an entry that both stages choose to the next one",
          "[kernels][select]") {
  const Recipe recipe = with(Selector::kTwoStage);
  const std::vector<float> scores = {9, 1, 2, 3, 4}, second = {9, 8, 7, 6, 5};
  // Budget 1: token 0 by second. Budget 2: token 0 by score, so token 1 joins by second.
  CHECK(orders_of(recipe, sizes_only(1, 5), scores, second).order[0] ==
        std::vector<std::uint32_t>{0, 1, 2, 4, 3});
}

TEST_CASE("two_stage at share 1 is topk, at share 0 it ranks by the second score",
          "[kernels][select]") {
  Recipe recipe = with(Selector::kTwoStage);
  const std::vector<float> scores = {3, NAN, 2, 9}, second = {1, 2, NAN, 0};
  recipe.first_stage_ppm = 1'000'000;
  CHECK(orders_of(recipe, sizes_only(1, 4), scores, second).order[0] ==
        std::vector<std::uint32_t>{3, 0, 2, 1});
  recipe.first_stage_ppm = 0;
  CHECK(orders_of(recipe, sizes_only(1, 4), scores, second).order[0] ==
        std::vector<std::uint32_t>{1, 0, 3, 2});
}

TEST_CASE("two_stage as kvpress counts protected entries inside the first stage",
          "[kernels][select]") {
  Recipe recipe = with(Selector::kTwoStage);
  recipe.count_rule = CountRule::kKvpressDouble;
  recipe.recent = 2;
  const std::vector<float> scores = {6, 5, 4, 3, 2, 1, 0, 0}, second = {1, 2, 3, 4, 5, 6, 0, 0};
  // The two protected entries take up half of 3, 4 and 5 entries, but not half of 6.
  CHECK(orders_of(recipe, sizes_only(1, 8), scores, second).order[0] ==
        std::vector<std::uint32_t>{7, 6, 5, 4, 3, 0, 2, 1});
  // Under ada, stage 2 never replaces the guarantee's entries: 0.5 x 8 per head, of which two are
  // ranked.
  recipe.heads = HeadAllocator::kAda;
  recipe.ada_mode = AdaMode::kGuaranteeInclWindow;
  recipe.ada_alpha_ppm = 500'000;
  LayerInput input = sizes_only(1, 8);
  input.entries = 8;
  CHECK(orders_of(recipe, input, scores, second).order[0] ==
        std::vector<std::uint32_t>{7, 6, 0, 1, 5, 4, 3, 2});
}

TEST_CASE("chunk keeps whole runs of ranked tokens, the same in every head", "[kernels][select]") {
  Recipe recipe = with(Selector::kChunk);
  recipe.sinks = recipe.recent = 1;
  recipe.chunk = 2;
  // sink | 1 2 | 3 4 | 5 6 | 7 | recent; sums over heads: 4, 6, NaN, 6 for a run of one
  const std::vector<float> scores = {9, 1, 1, 3, 0, 9, NAN, 1, 9,  //
                                     9, 1, 1, 0, 3, 9, 9,   2, 9};
  const auto orders = orders_of(recipe, sizes_only(2, 9), scores);
  CHECK(orders.protected_count == 2);
  for (const auto& order : orders.order) {
    CHECK(order == std::vector<std::uint32_t>{0, 8, 3, 4, 7, 1, 2, 5, 6});
  }
}

TEST_CASE("threshold puts what holds most of the mean attention before the best scores",
          "[kernels][select]") {
  Recipe recipe = with(Selector::kThreshold);
  recipe.mass_ppm = 800'000;
  const std::vector<float> scores = {1, 9, 2, 8, 3}, mean = {0.5, 0.0, 0.25, 0.05, 0.2};
  // 0.5 + 0.25 is less than 0.8, so token 4 reaches it.
  CHECK(orders_of(recipe, sizes_only(1, 5), scores, mean).order[0] ==
        std::vector<std::uint32_t>{0, 2, 4, 1, 3});
  CHECK(orders_of(recipe, sizes_only(1, 5), scores, std::vector<float>(5)).order[0] ==
        std::vector<std::uint32_t>{1, 3, 4, 2, 0});
  recipe.mass_ppm = 1'000'000;
  CHECK(orders_of(recipe, sizes_only(1, 5), scores, {1, 1, NAN, 1, -1}).order[0] ==
        std::vector<std::uint32_t>{0, 1, 3, 4, 2});
}

TEST_CASE("select equals its definition on random scores with ties and NaN", "[kernels][select]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    LayerShape shape;
    shape.num_tokens = pick(rng, 1, 70);
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.begin = pick(rng, 0, 5);
    shape.external = true;
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe = with(static_cast<Selector>(pick(rng, 0, 4)));
    recipe.sinks = pick(rng, 0, 6);
    recipe.recent = pick(rng, 0, 6);
    recipe.lag = pick(rng, 1, 9);
    recipe.chunk = pick(rng, 1, 9);
    recipe.first_stage_ppm = pick(rng, 0, 10) * 100'000;
    recipe.mass_ppm = pick(rng, 1, 10) * 100'000;
    if (recipe.selector == Selector::kPartitionTopk || pick(rng, 0, 3) == 0) {
      recipe.scorer = Scorer::kLagkv;
      recipe.protect_tail = true;
      recipe.recent = 0;
    }
    LayerInput input = layer.input;
    if (recipe.selector == Selector::kTwoStage && pick(rng, 0, 1) == 1) {
      recipe.count_rule = CountRule::kKvpressDouble;
      recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 1));
      input.entries = pick(rng, 1, 70) * input.num_kv_heads();
    }
    CAPTURE(round, shape.text(), canonical_recipe(recipe));
    LayerScores scores{layer.scores, make_layer(shape, rng).scores, 0};
    const auto got = orders_of(recipe, input, scores);
    const auto expected = reference_orders(recipe, input, scores);
    REQUIRE(got.protected_count == expected.protected_count);
    REQUIRE(got.order == expected.order);
  }
}

TEST_CASE("what is ranked no further than a layer's slots reach gives them the same turns",
          "[kernels][select]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const CpuStages cpu(2);
  std::size_t left_out = 0;
  for (int round = 0; round < 300; ++round) {
    LayerShape shape;
    shape.num_kv_heads = pick(rng, 1, 9);
    shape.num_tokens = pick(rng, 0, 3) == 0 ? pick(rng, 2000, 9000) : pick(rng, 1, 900);
    shape.head_dim = 1;
    shape.external = true;
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe = scorer_defaults(Scorer::kExternal);
    recipe.sinks = pick(rng, 0, 40);
    recipe.recent = pick(rng, 0, 40);
    recipe.selector = static_cast<Selector>(pick(rng, 0, 4));
    recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 2));
    recipe.ada_mode = static_cast<AdaMode>(pick(rng, 0, 3));
    recipe.ada_alpha_ppm = pick(rng, 0, 10) * 100'000;
    recipe.lag = pick(rng, 2, 300);
    recipe.chunk = pick(rng, 1, 30);
    recipe.first_stage_ppm = pick(rng, 0, 10) * 100'000;
    recipe.mass_ppm = pick(rng, 1, 10) * 100'000;
    if (pick(rng, 0, 4) == 0) recipe.layers = LayerAllocator::kGlobalFlat;
    LayerScores scores{layer.scores, make_layer(shape, rng).scores, 0};
    if (pick(rng, 0, 1) == 0) {  // heads of very different worth
      for (std::size_t i = 0; i < scores.scores.size(); ++i) {
        scores.scores[i] =
            static_cast<float>(rng() >> 40) * static_cast<float>(1 + 100 * (i / shape.num_tokens));
      }
    }
    const std::uint64_t all = std::uint64_t{shape.num_kv_heads} * shape.num_tokens;
    const std::uint64_t slots = rng() % (all + 1);
    CAPTURE(round, shape.text(), canonical_recipe(recipe), slots);
    RetentionOrders whole, part;
    LayerTurns of_whole, of_part;
    REQUIRE(cpu.select(recipe, layer.input, scores, all, whole).ok());
    REQUIRE(cpu.select(recipe, layer.input, scores, slots, part).ok());
    REQUIRE(cpu.allocate(recipe, layer.input, scores, whole, slots, of_whole).ok());
    REQUIRE(cpu.allocate(recipe, layer.input, scores, part, slots, of_part).ok());
    REQUIRE(part.protected_count == whole.protected_count);
    REQUIRE(of_part.heads == of_whole.heads);
    std::vector<std::size_t> wanted(shape.num_kv_heads);
    for (const std::uint16_t head : of_whole.heads) ++wanted[head];
    for (std::size_t h = 0; h < part.order.size(); ++h) {
      const auto& order = part.order[h];
      REQUIRE(order.size() >= wanted[h]);
      REQUIRE(std::equal(order.begin(), order.end(), whole.order[h].begin()));
      left_out += whole.order[h].size() - order.size();
      if (recipe.layers != LayerAllocator::kGlobalFlat) continue;
      REQUIRE(of_part.ranks[h].size() <= of_whole.ranks[h].size());
      REQUIRE(
          std::equal(of_part.ranks[h].begin(), of_part.ranks[h].end(), of_whole.ranks[h].begin()));
    }
  }
  CHECK(left_out > 0);
}

TEST_CASE("every instruction set gathers the same keys", "[kernels][select]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t first = pick(rng, 0, 9), last = first + pick(rng, 0, 600);
    std::vector<float> scores(last);
    for (float& x : scores) x = static_cast<float>(pick(rng, 0, 50)) - 25.0f;
    if (last > first) scores[pick(rng, first, last - 1)] = std::nanf("");
    const std::uint32_t bound = ~score_rank(static_cast<float>(pick(rng, 0, 60)) - 30.0f);
    std::vector<std::uint64_t> expected;
    for (std::uint32_t t = first; t < last; ++t) {
      if (~score_rank(scores[t]) <= bound) expected.push_back(retention_key(scores[t], t));
    }
    for (const Isa isa : isas()) {
      CAPTURE(round, isa_name(isa), first, last);
      std::vector<std::uint64_t> keys(last - first);
      const auto plain = for_isa<&gather_up_to<PlainKeys>>(isa);
      std::size_t count = plain(scores.data(), first, last, bound, keys.data());
      REQUIRE(std::vector(keys.data(), keys.data() + count) == expected);
      if (isa < Isa::kAvx512) continue;
      const auto wide = for_avx512<&gather_up_to<WideKeys>>();
      count = wide(scores.data(), first, last, bound, keys.data());
      REQUIRE(std::vector(keys.data(), keys.data() + count) == expected);
    }
  }
}
