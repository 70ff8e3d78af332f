// The memory-bound stages at every boundary of their blocks (sixteen rows, thirty-two channels, a
// block of turns, a work item). They give the same bits on any number of threads.
#include <catch2/catch.hpp>

#include "kernels/common/lanes.h"
#include "kernels/score/values/value_norms.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

constexpr Scorer kScorers[] = {Scorer::kKnorm,   Scorer::kKeydiff, Scorer::kKvdiff,
                               Scorer::kKvprobe, Scorer::kLagkv,   Scorer::kLocalkv};

Recipe of(Scorer scorer, std::uint32_t lag) {
  Recipe r;
  r.scorer = scorer;
  if (scorer == Scorer::kLagkv || scorer == Scorer::kLocalkv) {
    r.lag = lag;
    r.sinks = 4;
    r.protect_tail = true;
  }
  return r;
}

void check_everywhere(const LayerShape& shape, std::uint32_t lag, Rng& rng) {
  CAPTURE(shape.text(), lag);
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Scorer scorer : kScorers) {
    // Unit keys of one channel are 1 and -1; if they cancel, the sign of their mean is noise.
    if ((scorer == Scorer::kKeydiff || scorer == Scorer::kKvdiff) && shape.head_dim == 1) continue;
    CAPTURE(static_cast<int>(scorer));
    const Recipe recipe = of(scorer, lag);
    const auto expected = reference_scores(recipe, layer.input);
    for (const Isa isa : isas()) {
      CAPTURE(isa_name(isa));
      CHECK(first_difference(score_layer(recipe, layer.input, isa).scores, expected, 1e-5, 1e-5) ==
            "");
    }
  }
  const auto expected = reference_norms(ValueNorm::kVL1, layer.input);
  for (const Isa isa : isas()) {
    ThreadPool pool(2);
    CAPTURE(isa_name(isa));
    CHECK(first_difference(value_norms({pool, isa}, ValueNorm::kVL1, layer.input), expected, 1e-5,
                           1e-6) == "");
  }
}

}  // namespace

TEST_CASE("memory-bound scores agree with their definitions at every dim and dtype",
          "[kernels][score]") {
  Rng rng(21);
  const auto dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  for (const std::uint32_t head_dim : {1u, 3u, 17u, 31u, 33u, 64u, 80u, 127u, 128u, 256u}) {
    LayerShape shape;
    shape.probe = true;
    shape.dtype = dtype;
    shape.head_dim = head_dim;
    shape.num_tokens = pick(rng, 100, 140);
    shape.stride_gap = pick(rng, 0, 2);
    // RoPE rotates no channels, some channels, or as many as it can.
    for (const std::uint32_t pairs : {0u, head_dim / 3, head_dim / 2}) {
      shape.rope_pairs = pairs;
      check_everywhere(shape, 17, rng);
    }
  }
}

TEST_CASE("memory-bound scores have no seam where blocks and work items meet", "[kernels][score]") {
  Rng rng(22);
  const std::uint32_t n = GENERATE(1u, 15u, 16u, 17u, 63u, 64u, 65u, 1023u, 1024u, 1025u, 1041u);
  LayerShape shape;
  shape.probe = true;
  shape.dtype = Dtype::kBf16;
  shape.head_dim = GENERATE(64u, 128u);
  shape.rope_pairs = shape.head_dim / 2;
  shape.num_kv_heads = 1;
  shape.num_tokens = n;
  for (const std::uint32_t lag : {1u, 16u, 33u}) check_everywhere(shape, lag, rng);
}

TEST_CASE("memory-bound scores are the same bits on any number of threads", "[kernels][score]") {
  Rng rng(23);
  LayerShape shape;
  shape.probe = true;
  shape.dtype = Dtype::kBf16;
  shape.head_dim = 64;
  shape.rope_pairs = GENERATE(0u, 32u);
  shape.num_kv_heads = GENERATE(1u, 3u);
  shape.num_tokens = GENERATE(300u, 5000u);
  const OwnedLayer layer = make_layer(shape, rng);
  for (const Scorer scorer : kScorers) {
    const Recipe recipe = of(scorer, 128);
    for (const Isa isa : isas()) {
      const auto alone = score_layer(recipe, layer.input, isa, 1).scores;
      for (const unsigned threads : {2u, 3u, 8u}) {
        for (int round = 0; round < 5; ++round) {
          REQUIRE(score_layer(recipe, layer.input, isa, threads).scores == alone);
        }
      }
    }
  }
}

TEST_CASE("every f16 widens to its value in lanes too, and stands where lane_of says",
          "[kernels][common]") {
  for (std::uint32_t first = 0; first < 65536; first += kChannels) {
    std::uint16_t halves[kChannels];
    for (std::size_t c = 0; c < kChannels; ++c) halves[c] = static_cast<std::uint16_t>(first + c);
    for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
      const auto* src = reinterpret_cast<const std::byte*>(halves);
      float got[kChannels];
      store_channels(got, dtype == Dtype::kF16 ? widen_channels<Dtype::kF16>(src)
                                               : widen_channels<Dtype::kBf16>(src));
      for (std::size_t c = 0; c < kChannels; ++c) {
        const float want = dtype == Dtype::kF16 ? f32_of_f16(halves[c]) : f32_of_bf16(halves[c]);
        REQUIRE(bits_of_f32(got[lane_of(dtype, c)]) == bits_of_f32(want));
      }
    }
  }
}
