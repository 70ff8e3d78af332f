// Stage score: positions, key norms, key differences, LagKV; against the definitions in double.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/common/isa.h"
#include "kernels/score/score.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

Recipe of(Scorer scorer) {
  Recipe r;
  r.scorer = scorer;
  if (scorer == Scorer::kLagkv) {
    r.lag = 8;
    r.sinks = 4;
    r.protect_tail = true;
  }
  return r;
}

std::vector<float> scores_of(const Recipe& recipe, const LayerInput& input, Isa isa) {
  ThreadPool pool(2);
  std::vector<float> scores(std::size_t{input.num_kv_heads()} * input.num_tokens());
  REQUIRE(score_cpu({pool, isa}, recipe, input, scores).ok());
  return scores;
}

// Every score within `bound` of the definition, relative to its size.
void check_scores(const std::vector<float>& got, const std::vector<double>& expected,
                  double bound) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // infinities
    if (!(std::fabs(got[i] - expected[i]) <= bound * std::max(1.0, std::fabs(expected[i])))) {
      FAIL("score " << i << " is " << got[i] << ", expected " << expected[i]);
    }
  }
}

}  // namespace

TEST_CASE("scores agree with their definitions within 1e-5, on every instruction set",
          "[kernels][score]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const Scorer scorer =
      GENERATE(Scorer::kStreamingLlm, Scorer::kKnorm, Scorer::kKeydiff, Scorer::kLagkv);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32);
  for (const std::uint32_t head_dim : {1u, 7u, 64u, 80u, 128u}) {
    // Unit keys of one channel are 1 and -1; where they cancel, their mean's sign is noise.
    if (scorer == Scorer::kKeydiff && head_dim == 1) continue;
    LayerShape shape;
    shape.dtype = dtype;
    shape.head_dim = head_dim;
    shape.num_tokens = pick(rng, 1, 70);
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.begin = pick(rng, 0, 6);
    shape.stride_gap = pick(rng, 0, 2);
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const auto expected = reference_scores(of(scorer), layer.input);
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > detect_isa()) continue;
      CAPTURE(isa_name(isa));
      check_scores(scores_of(of(scorer), layer.input, isa), expected, 1e-5);
    }
  }
}

TEST_CASE("scores span several work items without a seam", "[kernels][score]") {
  Rng rng(3);
  LayerShape shape;
  shape.num_tokens = GENERATE(1023u, 1024u, 1025u, 2100u);
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Scorer scorer : {Scorer::kKnorm, Scorer::kKeydiff}) {
    check_scores(scores_of(of(scorer), layer.input, detect_isa()),
                 reference_scores(of(scorer), layer.input), 1e-5);
  }
}

TEST_CASE("streaming scores are absolute positions", "[kernels][score]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_tokens = 3;
  shape.num_kv_heads = 2;
  shape.begin = 100;
  const OwnedLayer layer = make_layer(shape, rng);
  CHECK(scores_of(of(Scorer::kStreamingLlm), layer.input, Isa::kBaseline) ==
        std::vector<float>{100, 101, 102, 100, 101, 102});
}

TEST_CASE("a zero key scores 0 under keydiff, and a lone key -1", "[kernels][score]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = 5;
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t c = 0; c < shape.head_dim; ++c)
    set_element(layer, layer.input.keys, 0, 2, c, 0);
  CHECK(scores_of(of(Scorer::kKeydiff), layer.input, detect_isa())[2] == 0.0f);
  shape.num_tokens = 1;
  const OwnedLayer lone = make_layer(shape, rng);
  CHECK(scores_of(of(Scorer::kKeydiff), lone.input, detect_isa())[0] == Approx(-1).epsilon(1e-6));
}

TEST_CASE("lagkv gives sinks and tail +infinity and everything on a short segment",
          "[kernels][lagkv]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.begin = GENERATE(0u, 3u, 4u);
  const std::uint32_t sinks = 4 - shape.begin;
  shape.num_tokens = sinks + GENERATE(15u, 16u, 23u, 24u, 31u);
  const OwnedLayer layer = make_layer(shape, rng);
  const auto scores = scores_of(of(Scorer::kLagkv), layer.input, detect_isa());
  const std::uint32_t partitions = (shape.num_tokens - sinks) / 8;
  const std::uint32_t tail = sinks + (partitions < 2 ? 0 : (partitions - 1) * 8);
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    CAPTURE(t, sinks, tail);
    CHECK(std::isinf(scores[t]) == (t < sinks || t >= tail));
  }
}

TEST_CASE("a constant channel neither blows up a lagkv score nor decides it", "[kernels][lagkv]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = 4 + 24;
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    set_element(layer, layer.input.keys, 0, t, 3, 0.25f);
  }
  const auto recipe = of(Scorer::kLagkv);
  const auto scores = scores_of(recipe, layer.input, detect_isa());
  for (std::uint32_t t = 4; t < 20; ++t) CHECK(std::isfinite(scores[t]));
  check_scores(scores, reference_scores(recipe, layer.input), 1e-5);
}

TEST_CASE("lagkv as kvpress ranks scores each token by its rank over the lag", "[kernels][lagkv]") {
  Rng rng(11);
  LayerShape shape;
  shape.num_tokens = 4 + 8 * 4 + 3;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = of(Scorer::kLagkv);
  recipe.lag_kvpress_ranks = true;
  const auto scores = scores_of(recipe, layer.input, detect_isa());
  check_scores(scores, reference_scores(recipe, layer.input), 0);
  std::vector<float> first(scores.begin() + 4, scores.begin() + 12);
  std::sort(first.begin(), first.end());
  CHECK(first == std::vector<float>{0, .125, .25, .375, .5, .625, .75, .875});
}

TEST_CASE("external scores pass unchanged, NaN included", "[kernels][score]") {
  Rng rng(5);
  LayerShape shape;
  shape.external = true;
  const OwnedLayer layer = make_layer(shape, rng);
  const auto scores = scores_of(of(Scorer::kExternal), layer.input, detect_isa());
  CHECK(bytes_text(std::as_bytes(std::span(scores))) ==
        bytes_text(std::as_bytes(std::span(layer.scores))));
}
