// Stage score, window attention: compared with softmax, pooling and reductions in double, as
// policies/scores.md, "Attention of observation queries", and D4 define them.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<float> scores_of(const Recipe& recipe, const LayerInput& input,
                             Isa isa = detect_isa()) {
  return score_layer(recipe, input, isa).scores;
}

// Weights are at most 1 (32 for a sum of 32 rows); f32 logits of |z| < 40 err by about 1e-5.
void check_scores(const std::vector<float>& got, const std::vector<double>& expected) {
  CHECK(first_difference(got, expected, 5e-5, 1e-7) == "");
}

Recipe window_recipe(std::uint32_t window, std::uint32_t kernel) {
  Recipe r;
  r.scorer = Scorer::kWindowAttention;
  r.window = r.recent = window;
  r.kernel = kernel;
  return r;
}

}  // namespace

TEST_CASE("window attention follows its definition in every order and reduction",
          "[kernels][window_attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Recipe recipe = window_recipe(pick(rng, 1, 9), 1 + 2 * pick(rng, 0, 3));
  recipe.pool = GENERATE(Pool::kAvg, Pool::kMax);
  recipe.pool_order = GENERATE(PoolOrder::kRowsGroupPool, PoolOrder::kRowsPoolGroup,
                               PoolOrder::kPoolRowsGroup, PoolOrder::kPoolGroupRows);
  recipe.row_reduce = GENERATE(RowReduce::kMean, RowReduce::kMax, RowReduce::kSum,
                               RowReduce::kSumOfSquares, RowReduce::kMeanVariance);
  recipe.group_reduce = GENERATE(Reduce::kMean, Reduce::kMax, Reduce::kSum);
  recipe.gamma_ppm = 2'500'000;
  LayerShape shape;
  shape.group = std::array{1u, 3u, 4u, 8u}[pick(rng, 0, 3)];
  shape.num_tokens = pick(rng, 1, 80);
  shape.head_dim = pick(rng, 1, 40);
  shape.num_kv_heads = pick(rng, 1, 2);
  shape.pushed = pick(rng, 1, shape.num_tokens);
  shape.lse = pick(rng, 0, 1) == 1;
  shape.dtype = pick_dtype(rng);
  CAPTURE(shape.text(), recipe.window, recipe.kernel);
  const OwnedLayer layer = make_layer(shape, rng);
  check_scores(scores_of(recipe, layer.input), reference_scores(recipe, layer.input));
}

TEST_CASE("window attention agrees on every instruction set, tile and chunk border",
          "[kernels][window_attention]") {
  Rng rng(2);
  LayerShape shape;
  shape.num_tokens = GENERATE(31u, 32u, 33u, 64u, 65u, 516u, 517u, 549u, 1100u);
  shape.group = 3;
  shape.num_kv_heads = 1;
  shape.pushed = 4;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = window_recipe(4, 5);
  // Pooled rows read across a chunk's border, so an error at a border would show in them.
  recipe.pool_order = GENERATE(PoolOrder::kRowsGroupPool, PoolOrder::kPoolRowsGroup);
  const auto expected = reference_scores(recipe, layer.input);
  for (const Isa isa : isas()) {
    CAPTURE(isa_name(isa), shape.num_tokens);
    check_scores(scores_of(recipe, layer.input, isa), expected);
  }
}

TEST_CASE("window attention agrees on every instruction set at odd dims, groups and row counts",
          "[kernels][window_attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (const std::uint32_t head_dim :
       {1u, 2u, 15u, 31u, 32u, 33u, 64u, 80u, 96u, 128u, 255u, 256u}) {
    LayerShape shape;
    shape.head_dim = head_dim;
    shape.num_tokens = std::array{31u, 63u, 64u, 65u, 129u, 150u}[pick(rng, 0, 5)];
    shape.group = pick(rng, 1, 16);
    shape.num_kv_heads = pick(rng, 1, 2);
    shape.pushed = pick(rng, 1, 20);  // rows rarely fill a tile of 16 or 32
    shape.lse = pick(rng, 0, 1) == 1;
    shape.stride_gap = pick(rng, 0, 3);
    shape.dtype = head_dim % 2 == 0 ? Dtype::kBf16 : pick_dtype(rng);
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe = window_recipe(shape.pushed, 1 + 2 * pick(rng, 0, 3));
    recipe.pool_order = static_cast<PoolOrder>(pick(rng, 0, 3));
    recipe.row_reduce = static_cast<RowReduce>(pick(rng, 0, 4));
    const auto expected = reference_scores(recipe, layer.input);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa), shape.text(), recipe.kernel);
      check_scores(scores_of(recipe, layer.input, isa), expected);
    }
  }
}

TEST_CASE("bf16 window attention spans the work items of both passes without a seam",
          "[kernels][window_attention]") {
  Rng rng(12);
  LayerShape shape;
  shape.num_tokens = GENERATE(1022u, 1024u, 1027u, 2047u, 2048u, 2049u, 2085u);
  shape.head_dim = 34;
  shape.group = 3;
  shape.num_kv_heads = 1;
  shape.pushed = 7;
  shape.dtype = Dtype::kBf16;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = window_recipe(7, 9);
  recipe.pool_order = GENERATE(PoolOrder::kRowsGroupPool, PoolOrder::kRowsPoolGroup);
  const auto expected = reference_scores(recipe, layer.input);
  for (const Isa isa : isas()) {
    CAPTURE(isa_name(isa), shape.num_tokens);
    check_scores(scores_of(recipe, layer.input, isa), expected);
  }
}

TEST_CASE("more rows than pass over a span at once observe alike", "[kernels][window_attention]") {
  Rng rng(12);
  LayerShape shape;
  shape.num_tokens = 300;
  shape.group = 4;
  shape.num_kv_heads = 1;
  shape.pushed = 135;  // 540 rows
  shape.dtype = GENERATE(Dtype::kF32, Dtype::kBf16);
  const OwnedLayer layer = make_layer(shape, rng);
  const Recipe recipe = window_recipe(135, 3);
  const auto expected = reference_scores(recipe, layer.input);
  for (const Isa isa : isas()) {
    CAPTURE(isa_name(isa));
    check_scores(scores_of(recipe, layer.input, isa), expected);
  }
}

TEST_CASE("a logit beyond all before it that an f32 can hold is found where it comes late",
          "[kernels][window_attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = 200;
  shape.pushed = 2;
  shape.dtype = GENERATE(Dtype::kF32, Dtype::kF16, Dtype::kBf16);
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
    for (std::uint32_t i = 0; i < 2; ++i) set_element(layer, layer.input.queries, 0, i, c, 96.0f);
    set_element(layer, layer.input.keys, 0, 150, c, 48.0f);
  }
  for (const Isa isa : isas()) {
    CAPTURE(isa_name(isa));
    const auto scores = scores_of(window_recipe(2, 1), layer.input, isa);
    for (std::uint32_t t = 0; t + 2 < shape.num_tokens; ++t) {
      CHECK(scores[t] == Approx(t == 150 ? 1.0f : 0.0f).margin(1e-30));
    }
  }
}

TEST_CASE("of more queries than the window the last ones observe", "[kernels][window_attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.pushed = 12;
  OwnedLayer layer = make_layer(shape, rng);
  const Recipe recipe = window_recipe(5, 3);
  const auto before = scores_of(recipe, layer.input);
  for (std::uint32_t q = 0; q < layer.input.num_q_heads; ++q) {
    for (std::uint32_t i = 0; i < 7; ++i) set_element(layer, layer.input.queries, q, i, 0, 9.0f);
  }
  CHECK(scores_of(recipe, layer.input) == before);
  set_element(layer, layer.input.queries, 0, 7, 0, 9.0f);
  CHECK(scores_of(recipe, layer.input) != before);
}

TEST_CASE("the tokens the queries stand at score +infinity, all of them in a short segment",
          "[kernels][window_attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.pushed = GENERATE(1u, 5u, 6u);
  shape.num_tokens = 6;
  const OwnedLayer layer = make_layer(shape, rng);
  const auto scores = scores_of(window_recipe(32, 7), layer.input);
  for (std::uint32_t t = 0; t < 6; ++t) {
    CHECK(std::isinf(scores[t]) == (t + shape.pushed >= 6));
  }
}

TEST_CASE("a pushed log-sum-exp over a longer context lowers every weight alike",
          "[kernels][window_attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.pushed = 3;
  shape.lse = true;
  OwnedLayer layer = make_layer(shape, rng);
  const Recipe recipe = window_recipe(3, 1);
  const auto within = scores_of(recipe, layer.input);
  for (float& lse : layer.lse)
    lse += std::log(2.0f);  // as if the tokens before the segment had
                            // as much mass as the segment
  const auto longer = scores_of(recipe, layer.input);
  for (std::size_t i = 0; i < within.size(); ++i) {
    if (!std::isinf(within[i])) CHECK(longer[i] == Approx(within[i] / 2).epsilon(1e-5));
  }
}

TEST_CASE("logits far apart neither overflow nor lose the largest", "[kernels][window_attention]") {
  Rng rng(4);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.pushed = 1;
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
    set_element(layer, layer.input.queries, 0, 0, c, 100.0f);
    set_element(layer, layer.input.keys, 0, 7, c, 50.0f);
  }
  const auto scores = scores_of(window_recipe(1, 1), layer.input);
  for (std::uint32_t t = 0; t + 1 < shape.num_tokens; ++t)
    CHECK(scores[t] == (t == 7 ? 1.0f : 0.0f));
}
