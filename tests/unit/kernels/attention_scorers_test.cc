// Stage score, the attention scorers: compares each scorer with its definition, computed with every
// weight in memory and in double.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

constexpr Scorer kAttentionScorers[] = {Scorer::kWindowAttention, Scorer::kTova, Scorer::kH2o,
                                        Scorer::kObservedMean,    Scorer::kVatp, Scorer::kCake,
                                        Scorer::kDefensive,       Scorer::kLava, Scorer::kKvzip};

// The scorer's preset, with a window of this many queries if the scorer has one.
Recipe recipe_of(Scorer scorer, std::uint32_t window) {
  Recipe r = scorer_defaults(scorer);
  if (r.window == 0) return r;
  r.window = window;
  if (protects_window(scorer)) r.recent = window;
  return r;
}

// Random sizes, with all inputs pushed that the scorer needs.
LayerShape shape_for(const Recipe& recipe, std::uint32_t num_tokens, Rng& rng) {
  LayerShape shape;
  shape.num_tokens = num_tokens;
  shape.num_kv_heads = pick(rng, 1, 3);
  shape.group = std::array{1u, 3u, 4u, 8u}[pick(rng, 0, 3)];
  shape.head_dim = std::array{64u, 80u, 128u, 256u}[pick(rng, 0, 3)];
  shape.behind = recipe.scorer == Scorer::kKvzip;
  shape.lse = shape.behind || pick(rng, 0, 1) == 1;
  shape.pushed = pick(rng, 1, num_tokens);
  if (shape.behind) shape.pushed = pick(rng, 1, 2 * num_tokens);
  if (recipe.scorer == Scorer::kObservedMean) shape.pushed = num_tokens;
  if (recipe.needs_o_proj()) shape.o_proj_width = pick(rng, 1, 70);
  shape.dtype = pick_dtype(rng);
  return shape;
}

// Weights are at most 1. Logits are f32 sums of up to 256 products and are of size about 5. Output
// norms are sums of such sums. Variances are small differences of squares.
void check_layer(const LayerScores& got, const ReferenceScores& expected) {
  CHECK(first_difference(got.scores, expected.scores, 1e-4, 1e-7) == "");
  if (!expected.second.empty() || !got.second.empty()) {
    CHECK(first_difference(got.second, expected.second, 1e-4, 1e-7) == "");
  }
  CHECK(got.weight == Approx(expected.weight).epsilon(1e-3));
}

}  // namespace

TEST_CASE("every attention scorer follows its definition, at every size around its window",
          "[kernels][attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (const Scorer scorer : kAttentionScorers) {
    const Recipe recipe = recipe_of(scorer, 5);
    for (const std::uint32_t num_tokens : {1u, 2u, 4u, 5u, 6u, 7u, 33u, 60u}) {
      const LayerShape shape = shape_for(recipe, num_tokens, rng);
      CAPTURE(canonical_recipe(recipe), shape.text());
      const OwnedLayer layer = make_layer(shape, rng);
      const ReferenceScores expected = reference_layer_scores(recipe, layer.input);
      for (const Isa isa : isas()) {
        CAPTURE(isa_name(isa));
        check_layer(score_layer(recipe, layer.input, isa), expected);
      }
    }
  }
}

TEST_CASE("every attention scorer follows its definition with every pool, order and reduction",
          "[kernels][attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 120; ++round) {
    Recipe recipe = recipe_of(kAttentionScorers[round % 9], pick(rng, 1, 9));
    recipe.kernel = 1 + 2 * pick(rng, 0, 4);
    recipe.pool = static_cast<Pool>(pick(rng, 0, 1));
    recipe.pool_order = static_cast<PoolOrder>(pick(rng, 0, 3));
    recipe.row_reduce = static_cast<RowReduce>(pick(rng, 0, 4));
    recipe.group_reduce = static_cast<Reduce>(pick(rng, 0, 2));
    LayerShape shape = shape_for(recipe, pick(rng, 1, 40), rng);
    shape.head_dim = pick(rng, 1, 40);
    CAPTURE(round, canonical_recipe(recipe), shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    check_layer(score_layer(recipe, layer.input), reference_layer_scores(recipe, layer.input));
  }
}

TEST_CASE("attention scorers span several work items without a seam", "[kernels][attention]") {
  Rng rng(6);
  for (const Scorer scorer : kAttentionScorers) {
    if (scorer == Scorer::kObservedMean) continue;  // same as h2o
    const Recipe recipe = recipe_of(scorer, 3);
    LayerShape shape;
    shape.num_tokens = 1030;
    shape.num_kv_heads = 2;
    shape.group = 2;
    shape.pushed = 3;
    shape.behind = shape.lse = scorer == Scorer::kKvzip;
    if (recipe.needs_o_proj()) shape.o_proj_width = 40;
    CAPTURE(canonical_recipe(recipe));
    const OwnedLayer layer = make_layer(shape, rng);
    check_layer(score_layer(recipe, layer.input), reference_layer_scores(recipe, layer.input));
  }
}

TEST_CASE("layers claim by entropy and variance of their attention as CAKE defines it",
          "[kernels][attention][weight]") {
  Rng rng(9);
  for (const Scorer scorer : kAttentionScorers) {
    if (scorer == Scorer::kKvzip) continue;
    Recipe recipe = recipe_of(scorer, 6);
    recipe.layers = LayerAllocator::kPreference;
    recipe.tau1_ppm = 1'600'000;
    recipe.tau2_ppm = 400'000;
    const LayerShape shape = shape_for(recipe, 50, rng);
    CAPTURE(canonical_recipe(recipe), shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    check_layer(score_layer(recipe, layer.input), reference_layer_scores(recipe, layer.input));
  }
}

TEST_CASE("layers claim by the entropy of their ranked scores as LAVa defines it",
          "[kernels][attention][weight]") {
  Rng rng(9);
  for (const Scorer scorer : kAttentionScorers) {
    Recipe recipe = recipe_of(scorer, 6);
    recipe.layers = LayerAllocator::kEntropy;
    recipe.sinks = 3;
    recipe.recent += 2;
    const LayerShape shape = shape_for(recipe, 50, rng);
    CAPTURE(canonical_recipe(recipe), shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    check_layer(score_layer(recipe, layer.input), reference_layer_scores(recipe, layer.input));
  }
}

TEST_CASE("a layer whose scores are no shares claims nothing, one of equal scores the most",
          "[kernels][weight]") {
  Rng rng(2);
  LayerShape shape;
  shape.num_tokens = 4;
  shape.num_kv_heads = 1;
  shape.external = true;
  OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe;
  recipe.scorer = Scorer::kExternal;
  recipe.layers = LayerAllocator::kEntropy;
  const auto weight = [&](std::vector<float> scores) {
    layer.scores = std::move(scores);
    layer.input.scores = layer.scores;
    return score_layer(recipe, layer.input).weight;
  };
  CHECK(weight({0, 0, 0, 0}) == 0);
  CHECK(weight({-1, NAN, INFINITY, -INFINITY}) == 0);
  CHECK(weight({3, 0, 0, 0}) == 0);
  CHECK(weight({7, 7, 7, 7}) == Approx(std::log(4.0) / 4));
  CHECK(weight({7, 7, -5, NAN}) == Approx(std::log(2.0) / 4));
}

TEST_CASE("weights and scores are the same bits on any number of threads",
          "[kernels][attention][weight]") {
  Rng rng(3);
  for (const Scorer scorer : {Scorer::kCake, Scorer::kDefensive, Scorer::kLava}) {
    Recipe recipe = recipe_of(scorer, 8);
    recipe.layers = LayerAllocator::kPreference;
    LayerShape shape;
    shape.num_tokens = 3000;
    shape.num_kv_heads = 3;
    shape.group = 2;
    shape.pushed = 8;
    shape.o_proj_width = 50;
    const OwnedLayer layer = make_layer(shape, rng);
    const LayerScores one = score_layer(recipe, layer.input, detect_isa(), 1);
    for (const unsigned threads : {2u, 5u}) {
      const LayerScores many = score_layer(recipe, layer.input, detect_isa(), threads);
      CHECK(many.scores == one.scores);
      CHECK(many.weight == one.weight);
    }
  }
}

TEST_CASE("threshold brings the mean attention beside the scores", "[kernels][attention]") {
  Rng rng(4);
  Recipe recipe = recipe_of(Scorer::kDefensive, 5);
  recipe.selector = Selector::kThreshold;
  for (const std::uint32_t num_tokens : {1u, 5u, 6u, 70u}) {
    const LayerShape shape = shape_for(recipe, num_tokens, rng);
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const LayerScores got = score_layer(recipe, layer.input);
    CHECK(got.second.size() == got.scores.size());
    check_layer(got, reference_layer_scores(recipe, layer.input));
  }
}

TEST_CASE("tova scores a token alike in every head", "[kernels][attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.num_kv_heads = 3;
  shape.group = 2;
  shape.pushed = 4;
  const OwnedLayer layer = make_layer(shape, rng);
  const auto scores = score_layer(scorer_defaults(Scorer::kTova), layer.input).scores;
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    CHECK(scores[t] == scores[shape.num_tokens + t]);
    CHECK(scores[t] == scores[2 * shape.num_tokens + t]);
  }
}

TEST_CASE("copies of one query head score as that head alone, under mean and max",
          "[kernels][attention]") {
  Rng rng(8);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.pushed = 6;
  const OwnedLayer alone = make_layer(shape, rng);
  LayerInput copies = alone.input;
  copies.num_q_heads = 4;
  std::vector<std::byte> queries;
  for (int g = 0; g < 4; ++g) {
    queries.insert(queries.end(), alone.queries.begin(), alone.queries.end());
  }
  copies.queries = HeadsView::packed(queries.data(), 4, 6, shape.head_dim, shape.dtype);
  Recipe recipe = recipe_of(Scorer::kWindowAttention, 6);
  recipe.group_reduce = GENERATE(Reduce::kMean, Reduce::kMax);
  CHECK(score_layer(recipe, copies).scores == score_layer(recipe, alone.input).scores);
}

TEST_CASE("permuting KV heads permutes their scores", "[kernels][attention]") {
  Rng rng(8);
  for (const Scorer scorer : kAttentionScorers) {
    const Recipe recipe = recipe_of(scorer, 4);
    LayerShape shape;
    shape.num_tokens = 50;
    shape.num_kv_heads = 2;
    shape.group = 3;
    shape.pushed = scorer == Scorer::kObservedMean ? 50 : 4;
    shape.behind = shape.lse = scorer == Scorer::kKvzip;
    if (recipe.needs_o_proj()) shape.o_proj_width = 9;
    OwnedLayer layer = make_layer(shape, rng);
    const auto before = score_layer(recipe, layer.input).scores;
    const auto swap_halves = [](auto& values) {
      std::rotate(values.begin(), values.begin() + values.size() / 2, values.end());
    };
    for (auto* bytes : {&layer.keys, &layer.values, &layer.queries, &layer.o_proj}) {
      swap_halves(*bytes);
    }
    swap_halves(layer.lse);
    auto after = score_layer(recipe, layer.input).scores;
    swap_halves(after);
    CHECK(after == before);
  }
}
