// Stage score, expected attention: compared with its definition in double.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// Logits are quadratic forms of up to 256 x 256 products in f32, of size about 1 here, so weights
// have a relative error of about 1e-5.
void check_layer(const Recipe& recipe, const OwnedLayer& layer, Isa isa) {
  const auto expected = reference_scores(recipe, layer.input);
  CHECK(first_difference(score_layer(recipe, layer.input, isa).scores, expected, 5e-5, 1e-7) == "");
}

}  // namespace

TEST_CASE("expected attention follows its definition, on every instruction set",
          "[kernels][expected_attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Recipe recipe = scorer_defaults(Scorer::kExpectedAttention);
  for (const std::uint32_t head_dim : {1u, 7u, 64u, 80u, 128u, 256u}) {
    LayerShape shape;
    shape.head_dim = head_dim;
    shape.group = std::array{1u, 3u, 4u, 8u}[pick(rng, 0, 3)];
    shape.num_tokens = pick(rng, 1, 40);
    shape.num_kv_heads = pick(rng, 1, 2);
    shape.begin = pick(rng, 0, 6);
    shape.query_stats = true;
    shape.dtype = pick_dtype(rng);
    recipe.ea_value_norm = pick(rng, 0, 1) == 1;
    CAPTURE(shape.text(), recipe.ea_value_norm);
    const OwnedLayer layer = make_layer(shape, rng);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      check_layer(recipe, layer, isa);
    }
  }
}

TEST_CASE("expected attention spans several work items without a seam",
          "[kernels][expected_attention]") {
  Rng rng(2);
  LayerShape shape;
  shape.num_tokens = GENERATE(255u, 256u, 257u, 700u);
  shape.group = 5;  // more than a tile's rows of means
  shape.query_stats = true;
  shape.head_dim = 33;
  shape.dtype = GENERATE(Dtype::kF32, Dtype::kBf16);
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Isa isa : isas()) {
    CAPTURE(isa_name(isa), shape.text());
    check_layer(scorer_defaults(Scorer::kExpectedAttention), layer, isa);
  }
}

TEST_CASE("expected attention keeps sinks out of the softmax and gives them +infinity",
          "[kernels][expected_attention]") {
  Rng rng(2);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = GENERATE(3u, 4u, 5u, 30u);
  shape.query_stats = true;
  OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = scorer_defaults(Scorer::kExpectedAttention);
  recipe.ea_value_norm = false;
  const auto scores = score_layer(recipe, layer.input).scores;
  double total = 0;
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    CHECK(std::isinf(scores[t]) == (t < 4));
    if (t >= 4) total += scores[t];
  }
  if (shape.num_tokens > 4) CHECK(total == Approx(1).epsilon(1e-5));
  set_element(layer, layer.input.keys, 0, 0, 0, 9.0f);  // an element of a sink
  CHECK(score_layer(recipe, layer.input).scores == scores);
}
