// Stage score: compares positions, key norms, key differences, partitions and hashes with their
// definitions in double.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "kernels/score/random_op.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

Recipe of(Scorer scorer) {
  Recipe r;
  r.scorer = scorer;
  if (scorer == Scorer::kLagkv || scorer == Scorer::kLocalkv) {
    r.lag = 8;
    r.sinks = 4;
    r.protect_tail = true;
  }
  return r;
}

std::vector<float> scores_of(const Recipe& recipe, const LayerInput& input,
                             Isa isa = detect_isa()) {
  return score_layer(recipe, input, isa).scores;
}

// Every score is within `bound` of the definition, absolute plus relative.
void check_scores(const std::vector<float>& got, const std::vector<double>& expected,
                  double bound) {
  CHECK(first_difference(got, expected, bound, bound) == "");
}

}  // namespace

TEST_CASE("scores agree with their definitions within 1e-5, on every instruction set",
          "[kernels][score]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const Scorer scorer =
      GENERATE(Scorer::kStreamingLlm, Scorer::kKnorm, Scorer::kKeydiff, Scorer::kKvdiff,
               Scorer::kKvprobe, Scorer::kLagkv, Scorer::kLocalkv, Scorer::kRandom);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  for (const std::uint32_t head_dim : {1u, 7u, 64u, 80u, 128u}) {
    // Unit keys of one channel are 1 and -1; if they cancel, the sign of their mean is noise.
    if ((scorer == Scorer::kKeydiff || scorer == Scorer::kKvdiff) && head_dim == 1) continue;
    LayerShape shape;
    shape.dtype = dtype;
    shape.head_dim = head_dim;
    shape.num_tokens = pick(rng, 1, 70);
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.begin = pick(rng, 0, 6);
    shape.stride_gap = pick(rng, 0, 2);
    shape.rope_pairs = pick(rng, 0, head_dim / 2);
    shape.probe = scorer == Scorer::kKvprobe;
    CAPTURE(shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const auto expected = reference_scores(of(scorer), layer.input);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      check_scores(scores_of(of(scorer), layer.input, isa), expected, 1e-5);
    }
  }
}

TEST_CASE("scores span several work items without a seam", "[kernels][score]") {
  Rng rng(3);
  LayerShape shape;
  shape.num_tokens = GENERATE(1023u, 1024u, 1025u, 2100u);
  shape.rope_pairs = 3;
  shape.probe = true;
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Scorer scorer :
       {Scorer::kKnorm, Scorer::kKeydiff, Scorer::kKvdiff, Scorer::kKvprobe}) {
    check_scores(scores_of(of(scorer), layer.input), reference_scores(of(scorer), layer.input),
                 1e-5);
  }
}

TEST_CASE("kvdiff sees keys as they were before RoPE: where the segment begins is nothing to it",
          "[kernels][score]") {
  Rng rng(5);
  LayerShape shape;
  shape.num_tokens = 50;
  shape.num_kv_heads = 1;
  shape.head_dim = 8;
  OwnedLayer still = make_layer(shape, rng);
  shape.rope_pairs = 4;
  OwnedLayer turned = make_layer(shape, rng);
  turned.values = still.values;
  const auto begin = static_cast<double>(GENERATE(0, 1000));
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    for (std::uint32_t c = 0; c < 4; ++c) {
      const double angle = (begin + t) * turned.rope_frequencies[c];
      const double a = value_at(still.input.keys, 0, t, c);
      const double b = value_at(still.input.keys, 0, t, c + 4);
      set_element(turned, turned.input.keys, 0, t, c,
                  static_cast<float>(a * std::cos(angle) - b * std::sin(angle)));
      set_element(turned, turned.input.keys, 0, t, c + 4,
                  static_cast<float>(b * std::cos(angle) + a * std::sin(angle)));
    }
  }
  turned.input.values.data = turned.values.data();
  const auto scores = scores_of(of(Scorer::kKvdiff), still.input);
  check_scores(scores_of(of(Scorer::kKvdiff), turned.input), {scores.begin(), scores.end()}, 1e-4);
}

TEST_CASE("a token's kvprobe score depends on no other token but on the distance to the end",
          "[kernels][score]") {
  Rng rng(7);
  LayerShape shape;
  shape.num_tokens = 3000;
  shape.num_kv_heads = 1;
  shape.rope_pairs = 4;
  shape.begin = 1000;
  shape.probe = true;
  OwnedLayer layer = make_layer(shape, rng);
  const auto whole = scores_of(of(Scorer::kKvprobe), layer.input);
  const std::uint32_t cut = GENERATE(1, 63, 64, 250);
  LayerInput rest = layer.input;
  rest.begin += cut;
  for (HeadsView* rows : {&rest.keys, &rest.values}) {
    rows->data = rows->row(0, cut);
    rows->num_tokens -= cut;
  }
  check_scores(scores_of(of(Scorer::kKvprobe), rest), {whole.begin() + cut, whole.end()}, 1e-4);

  LayerInput first = layer.input;
  for (HeadsView* rows : {&first.keys, &first.values}) rows->num_tokens -= cut;
  const auto nearer = scores_of(of(Scorer::kKvprobe), first);
  float& coefficient = layer.probe[ProbeRows{shape.head_dim}.distance()];
  std::vector<double> expected;
  for (std::uint32_t t = 0; t < nearer.size(); ++t) {
    const double after = shape.num_tokens - 1 - t;
    expected.push_back(whole[t] *
                       std::pow((1 + (after - cut) / 512) / (1 + after / 512), coefficient));
  }
  check_scores(nearer, expected, 1e-4);
  coefficient = 0;
  const auto flat = scores_of(of(Scorer::kKvprobe), layer.input);
  check_scores(scores_of(of(Scorer::kKvprobe), first), {flat.begin(), flat.end() - cut}, 1e-4);
}

TEST_CASE("a kvprobe score is finite and above zero whatever the coefficients and rows",
          "[kernels][score]") {
  Rng rng(8);
  LayerShape shape;
  shape.probe = true;
  OwnedLayer layer = make_layer(shape, rng);
  const float factor = GENERATE(0.0f, 1e3f, -1e3f, 1e6f);
  const int keys = GENERATE(0, 1, 2), values = GENERATE(0, 1, 2);  // as they are, zero, huge
  for (float& x : layer.probe) x *= factor;
  for (const auto& [kind, rows] : {std::pair{keys, &layer.keys}, {values, &layer.values}}) {
    if (kind > 0)
      std::ranges::fill(*rows, static_cast<std::byte>(kind == 1 ? 0x00 : 0x7e));  // 0x7e7e..: 8e37
  }
  for (const float score : scores_of(of(Scorer::kKvprobe), layer.input)) {
    CHECK((std::isfinite(score) && score > 0));
  }
}

TEST_CASE("where all values are zero kvdiff goes by the keys", "[kernels][score]") {
  Rng rng(6);
  LayerShape shape;
  shape.num_kv_heads = 1;
  OwnedLayer layer = make_layer(shape, rng);
  std::fill(layer.values.begin(), layer.values.end(), std::byte{0});
  auto expected = reference_scores(of(Scorer::kKeydiff), layer.input);
  for (double& score : expected) score += 1;
  check_scores(scores_of(of(Scorer::kKvdiff), layer.input), expected, 1e-5);
}

TEST_CASE("streaming scores are absolute positions", "[kernels][score]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_tokens = 3;
  shape.num_kv_heads = 2;
  shape.begin = 100;
  const OwnedLayer layer = make_layer(shape, rng);
  CHECK(scores_of(of(Scorer::kStreamingLlm), layer.input) ==
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
  CHECK(scores_of(of(Scorer::kKeydiff), layer.input)[2] == 0.0f);
  shape.num_tokens = 1;
  const OwnedLayer lone = make_layer(shape, rng);
  CHECK(scores_of(of(Scorer::kKeydiff), lone.input)[0] == Approx(-1).epsilon(1e-6));
}

TEST_CASE("partitions give sinks and tail +infinity and everything on a short segment",
          "[kernels][partitions]") {
  Rng rng(1);
  const Scorer scorer = GENERATE(Scorer::kLagkv, Scorer::kLocalkv);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.begin = GENERATE(0u, 3u, 4u);
  const std::uint32_t sinks = 4 - shape.begin;
  shape.num_tokens = sinks + GENERATE(15u, 16u, 23u, 24u, 31u);
  const OwnedLayer layer = make_layer(shape, rng);
  const auto scores = scores_of(of(scorer), layer.input);
  const std::uint32_t partitions = (shape.num_tokens - sinks) / 8;
  const std::uint32_t tail = sinks + (partitions < 2 ? 0 : (partitions - 1) * 8);
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    CAPTURE(t, sinks, tail);
    CHECK(std::isinf(scores[t]) == (t < sinks || t >= tail));
  }
}

TEST_CASE("a constant channel neither blows up a partition's score nor decides it",
          "[kernels][partitions]") {
  Rng rng(1);
  const Scorer scorer = GENERATE(Scorer::kLagkv, Scorer::kLocalkv);
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = 4 + 24;
  OwnedLayer layer = make_layer(shape, rng);
  for (std::uint32_t t = 0; t < shape.num_tokens; ++t) {
    set_element(layer, layer.input.keys, 0, t, 3, 0.25f);
  }
  const auto recipe = of(scorer);
  const auto scores = scores_of(recipe, layer.input);
  for (std::uint32_t t = 4; t < 20; ++t) CHECK(std::isfinite(scores[t]));
  check_scores(scores, reference_scores(recipe, layer.input), 1e-5);
}

TEST_CASE("a partition scores the same bits however many tokens follow", "[kernels][partitions]") {
  Rng rng(1);
  const Recipe recipe = of(GENERATE(Scorer::kLagkv, Scorer::kLocalkv));
  LayerShape shape;
  shape.num_kv_heads = 1;
  shape.num_tokens = 4 + 8 * 6 + 5;
  const OwnedLayer layer = make_layer(shape, rng);
  const auto all = scores_of(recipe, layer.input);
  for (std::uint32_t n = 4 + 16; n < shape.num_tokens; ++n) {
    LayerInput arrived = layer.input;
    arrived.keys.num_tokens = arrived.values.num_tokens = n;
    const auto scores = scores_of(recipe, arrived);
    const std::uint32_t scored = 4 + ((n - 4) / 8 - 1) * 8;
    CAPTURE(n, scored);
    CHECK(std::equal(scores.begin(), scores.begin() + scored, all.begin()));
    CHECK(std::isinf(scores[scored]));
  }
}

TEST_CASE("lagkv as kvpress ranks scores each token by its rank over the lag",
          "[kernels][partitions]") {
  Rng rng(11);
  LayerShape shape;
  shape.num_tokens = 4 + 8 * 4 + 3;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = of(Scorer::kLagkv);
  recipe.lag_kvpress_ranks = true;
  const auto scores = scores_of(recipe, layer.input);
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
  const auto scores = scores_of(of(Scorer::kExternal), layer.input);
  CHECK(bytes_text(std::as_bytes(std::span(scores))) ==
        bytes_text(std::as_bytes(std::span(layer.scores))));
}

TEST_CASE("random scores hash seed, layer, head and absolute position, evenly over [0, 1)",
          "[kernels][score]") {
  Rng rng(5);
  LayerShape shape;
  shape.num_tokens = 4096;
  shape.layer = 1;
  shape.num_layers = 2;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = of(Scorer::kRandom);
  const auto scores = scores_of(recipe, layer.input);
  // Fixed values: stored segments of other builds must have been scored the same way.
  CHECK(random_score(0, 0, 0, 0) == 0x1.4e0dbap-1f);
  CHECK(random_score(7, 1, 2, 3) == 0x1.a0d5c8p-1f);
  std::size_t below = 0;
  for (const float s : scores) {
    CHECK((s >= 0 && s < 1));
    below += s < 0.25f;
  }
  CHECK(below > scores.size() / 4 - 200);  // 5 standard deviations of 8192 draws
  CHECK(below < scores.size() / 4 + 200);
  CHECK(std::set<float>(scores.begin(), scores.end()).size() > scores.size() - 20);

  LayerInput moved = layer.input;
  moved.begin = 1;
  const auto later = scores_of(recipe, moved);
  CHECK(std::equal(later.begin(), later.begin() + 4095, scores.begin() + 1));
  moved = layer.input;
  moved.layer = 0;
  CHECK(scores_of(recipe, moved) != scores);
  recipe.seed = 1;
  CHECK(scores_of(recipe, layer.input) != scores);
}
