// Output norms of values and the scores made from them, compared with sums in double.
#include "kernels/score/values/value_norms.h"

#include <array>
#include <catch2/catch.hpp>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<float> norms_of(ValueNorm norm, const LayerInput& input, Isa isa = detect_isa()) {
  ThreadPool pool(2);
  return value_norms({pool, isa}, norm, input);
}

// Allows a share of the norm, plus the rounding error of its sums.
std::string difference(ValueNorm norm, const LayerInput& input, std::span<const float> got,
                       const std::vector<double>& expected) {
  std::vector<double> bounds = norm_rounding(norm, input);
  for (double& bound : bounds) bound += 2e-4;
  return first_difference(got, expected, 2e-5, bounds);
}

}  // namespace

TEST_CASE("value norms agree with their definitions, on every instruction set",
          "[kernels][norms]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const ValueNorm norm = GENERATE(ValueNorm::kL1Exact, ValueNorm::kL2Gram, ValueNorm::kVL1);
  for (const std::uint32_t head_dim : {1u, 7u, 64u, 80u, 128u, 256u}) {
    LayerShape shape;
    shape.head_dim = head_dim;
    shape.num_tokens = pick(rng, 1, 40);
    shape.num_kv_heads = pick(rng, 1, 2);
    shape.group = std::array{1u, 3u, 4u, 8u}[pick(rng, 0, 3)];
    shape.o_proj_width = pick(rng, 1, 70);  // rarely a multiple of a tile's 32
    shape.stride_gap = pick(rng, 0, 2);
    shape.dtype = pick_dtype(rng);
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const auto expected = reference_norms(norm, layer.input);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      CHECK(difference(norm, layer.input, norms_of(norm, layer.input, isa), expected) == "");
    }
  }
}

TEST_CASE("value norms span several work items without a seam", "[kernels][norms]") {
  Rng rng(3);
  LayerShape shape;
  shape.num_tokens = GENERATE(255u, 256u, 257u, 600u);
  shape.group = 2;
  shape.o_proj_width = 33;
  const OwnedLayer layer = make_layer(shape, rng);
  for (const ValueNorm norm : {ValueNorm::kL1Exact, ValueNorm::kL2Gram, ValueNorm::kVL1}) {
    CHECK(difference(norm, layer.input, norms_of(norm, layer.input),
                     reference_norms(norm, layer.input)) == "");
  }
}

TEST_CASE("bf16 norms hold their bounds at the borders of tiles, stretches and work items",
          "[kernels][norms]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const ValueNorm norm = GENERATE(ValueNorm::kL1Exact, ValueNorm::kL2Gram);
  for (const std::uint32_t num_tokens :
       {1u, 15u, 16u, 17u, 31u, 32u, 33u, 2047u, 2048u, 2050u, 8193u}) {
    LayerShape shape;
    shape.num_tokens = num_tokens;
    shape.head_dim = std::array{2u, 31u, 32u, 33u, 64u, 97u}[pick(rng, 0, num_tokens > 99 ? 3 : 5)];
    if (num_tokens > 8000) shape.head_dim = 64;  // more than a MiB
    shape.num_kv_heads = 1;
    shape.group = pick(rng, 1, num_tokens > 99 ? 2 : 16);
    shape.o_proj_width = std::array{1u, 16u, 31u, 32u, 63u, 64u, 65u, 130u}[pick(rng, 0, 7)];
    shape.dtype = Dtype::kBf16;
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const auto expected = reference_norms(norm, layer.input);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      CHECK(difference(norm, layer.input, norms_of(norm, layer.input, isa), expected) == "");
    }
  }
}

TEST_CASE("a zero value has no norm", "[kernels][norms]") {
  Rng rng(3);
  LayerShape shape;
  shape.o_proj_width = 10;
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t c = 0; c < shape.head_dim; ++c) {
    set_element(layer, layer.input.values, 1, 5, c, 0);
  }
  for (const ValueNorm norm : {ValueNorm::kL1Exact, ValueNorm::kL2Gram, ValueNorm::kVL1}) {
    CHECK(norms_of(norm, layer.input)[shape.num_tokens + 5] == 0.0f);
  }
}

TEST_CASE("Gram matrices are W W^T of every query head, symmetric to the bit", "[kernels][norms]") {
  Rng rng(5);
  LayerShape shape;
  shape.head_dim = GENERATE(1u, 6u, 33u);
  shape.o_proj_width = GENERATE(1u, 255u, 256u, 600u);
  shape.num_kv_heads = 2;
  shape.group = 2;
  shape.num_tokens = 1;
  shape.dtype = Dtype::kBf16;
  const OwnedLayer layer = make_layer(shape, rng);
  const std::uint32_t d = shape.head_dim;
  const auto grams = gram_matrices(layer.input.o_proj, layer.input.num_q_heads, d);
  const std::vector<double> expected(layer.gram.begin(), layer.gram.end());
  CHECK(first_difference(grams, expected, 1e-5, 1e-4) == "");
  for (std::uint32_t q = 0; q < 4; ++q) {
    for (std::uint32_t a = 0; a < d; ++a) {
      for (std::uint32_t b = 0; b < a; ++b) {
        REQUIRE(grams[(q * d + a) * d + b] == grams[(q * d + b) * d + a]);
      }
    }
  }
}

TEST_CASE("two_stage brings (s + epsilon) x norm beside the scores", "[kernels][norms]") {
  Rng rng(4);
  const ValueNorm norm = GENERATE(ValueNorm::kL1Exact, ValueNorm::kL2Gram, ValueNorm::kVL1);
  LayerShape shape;
  shape.group = 3;
  shape.pushed = 8;
  shape.o_proj_width = 20;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = scorer_defaults(Scorer::kWindowAttention);
  recipe.selector = Selector::kTwoStage;
  recipe.value_norm = norm;
  recipe.epsilon_ppm = 5000;
  const LayerScores got = score_layer(recipe, layer.input);
  const ReferenceScores expected = reference_layer_scores(recipe, layer.input);
  CHECK(first_difference(got.scores, expected.scores, 5e-5, 1e-7) == "");
  CHECK(first_difference(got.second, expected.second, 1e-4, 1e-6) == "");
}
