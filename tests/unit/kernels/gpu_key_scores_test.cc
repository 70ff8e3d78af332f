// The CUDA implementations of the scorers that read only K, or K and V, against the CPU's and the
// definition's.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/score/keys/key_scores_cuda.h"
#include "kernels/score/keys/partitions_cuda.h"
#include "kernels/score/values/value_norms.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// Both sides round sums of at most 1024 terms and of at most 2^24 tokens in f32, in different
// orders. Cosines cancel, so their bound is on the absolute difference.
constexpr double kRelative = 2e-5, kAbsolute = 2e-6;

void check_close(const std::vector<float>& got, const std::vector<float>& expected,
                 double relative = kRelative) {
  REQUIRE(got.size() == expected.size());
  const std::vector<double> wide(expected.begin(), expected.end());
  REQUIRE(first_difference(got, wide, relative, kAbsolute) == "");
}

HeadRowsDevice rows_at(const DeviceBuffer& buffer, const HeadsView& heads) {
  return {buffer.data(), heads.num_heads, heads.num_tokens, heads.head_dim, heads.dtype};
}

LayerShape random_shape(Rng& rng, int round) {
  LayerShape shape;
  shape.num_tokens = round % 5 == 0 ? pick(rng, 200, 1300) : pick(rng, 1, 80);
  shape.num_kv_heads = pick(rng, 1, 3);
  shape.head_dim = round % 2 == 0 ? 8 * pick(rng, 1, 32) : pick(rng, 1, 256);
  if (round % 25 == 0) shape.head_dim = 1024 - 8 * pick(rng, 0, 2);
  // Unit keys of one channel are 1 and -1. If their number is even they may cancel, and then the
  // sign of their mean is rounding noise.
  if (shape.head_dim == 1) shape.num_tokens |= 1;
  shape.stride_gap = pick(rng, 0, 3);
  shape.dtype = static_cast<Dtype>(pick(rng, 1, 3));
  return shape;
}

template <typename Launch>
std::vector<float> scored(Gpu& gpu, std::size_t count, std::size_t workspace_bytes,
                          const Launch& launch) {
  const DeviceBuffer out = gpu.empty(count * sizeof(float)), space = gpu.empty(workspace_bytes);
  must_succeed(launch(space.data(), data_of<float>(out)));
  return gpu.download<float>(out);
}

// Appends the cosines, then the sines, of the angles by which `tokens` positions turn each pair.
void append_turn(const std::vector<double>& frequencies, std::uint32_t tokens,
                 std::vector<float>& turns) {
  for (const double f : frequencies) turns.push_back(static_cast<float>(std::cos(tokens * f)));
  for (const double f : frequencies) turns.push_back(static_cast<float>(std::sin(tokens * f)));
}

}  // namespace

TEST_CASE("norms and key differences on the device are the CPU's within the bound",
          "[gpu][key_scores]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  for (int round = 0; round < rounds(60); ++round) {
    const LayerShape shape = random_shape(rng, round);
    CAPTURE(round, shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    const DeviceBuffer keys = gpu.upload(layer.input.keys);
    const DeviceBuffer values = gpu.upload(layer.input.values);
    const HeadRowsDevice rows = rows_at(keys, layer.input.keys);
    const std::size_t count = std::size_t{shape.num_kv_heads} * shape.num_tokens;
    Recipe recipe;
    recipe.scorer = Scorer::kKnorm;
    check_close(scored(gpu, count, 0,
                       [&](void*, float* out) { return launch_knorm(rows, out, gpu.stream()); }),
                score_layer(recipe, layer.input).scores);
    recipe.scorer = Scorer::kKeydiff;
    const auto keydiff = [&](void* space, float* out) {
      return launch_keydiff(rows, space, out, gpu.stream());
    };
    const auto got = scored(gpu, count, keydiff_workspace_bytes(rows), keydiff);
    check_close(got, score_layer(recipe, layer.input).scores);
    REQUIRE(first_difference(got, reference_scores(recipe, layer.input), kRelative, kAbsolute) ==
            "");
    REQUIRE(scored(gpu, count, keydiff_workspace_bytes(rows), keydiff) == got);
    ThreadPool pool(1);
    check_close(scored(gpu, count, 0,
                       [&](void*, float* out) {
                         return launch_l1_norms(rows_at(values, layer.input.values), out,
                                                gpu.stream());
                       }),
                value_norms({pool, detect_isa()}, ValueNorm::kVL1, layer.input));
  }
}

TEST_CASE("key differences times value norms on the device are the CPU's within the bound",
          "[gpu][key_scores]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  for (int round = 0; round < rounds(60); ++round) {
    LayerShape shape = random_shape(rng, round);
    shape.head_dim = std::max(2u, shape.head_dim);
    shape.rope_pairs = pick(rng, 0, std::min(128u, shape.head_dim / 2));
    CAPTURE(round, shape.text(), shape.rope_pairs);
    const OwnedLayer layer = make_layer(shape, rng);
    const std::uint32_t block_tokens = pick(rng, 1, 300);
    std::vector<float> of_blocks, of_steps;
    for (std::uint32_t t = 0; t < shape.num_tokens; t += block_tokens) {
      append_turn(layer.rope_frequencies, t, of_blocks);
    }
    for (std::uint32_t t = 0; t < block_tokens; ++t) {
      append_turn(layer.rope_frequencies, t, of_steps);
    }
    const DeviceBuffer keys = gpu.upload(layer.input.keys), blocks = gpu.upload(of_blocks);
    const DeviceBuffer values = gpu.upload(layer.input.values), steps = gpu.upload(of_steps);
    const HeadRowsDevice rows = rows_at(keys, layer.input.keys);
    const TurnsDevice turns{shape.rope_pairs, block_tokens, data_of<float>(blocks),
                            data_of<float>(steps)};
    Recipe recipe;
    recipe.scorer = Scorer::kKvdiff;
    const std::size_t count = std::size_t{shape.num_kv_heads} * shape.num_tokens;
    const auto got = scored(gpu, count, kvdiff_workspace_bytes(rows), [&](void* space, float* out) {
      return launch_kvdiff(rows, rows_at(values, layer.input.values), turns, space, out,
                           gpu.stream());
    });
    check_close(got, score_layer(recipe, layer.input).scores);
  }
}

TEST_CASE("scores within partitions on the device are the CPU's within the bound",
          "[gpu][partitions]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  for (int round = 0; round < rounds(50); ++round) {
    LayerShape shape = random_shape(rng, round);
    shape.begin = pick(rng, 0, 5);
    CAPTURE(round, shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe;
    recipe.scorer = pick(rng, 0, 1) == 0 ? Scorer::kLagkv : Scorer::kLocalkv;
    recipe.sinks = pick(rng, 0, 6);
    recipe.lag = pick(rng, 1, std::max(1u, shape.num_tokens / 2));
    recipe.protect_tail = true;
    CAPTURE(recipe.lag);
    const DeviceBuffer keys = gpu.upload(layer.input.keys);
    const DeviceBuffer values = gpu.upload(layer.input.values);
    PartitionsDevice task{};
    task.shape = SegmentShape::of(recipe, 0, shape.begin, shape.num_tokens);
    task.num_heads = shape.num_kv_heads;
    task.head_dim = shape.head_dim;
    task.dtype = shape.dtype;
    task.ahead = recipe.scorer == Scorer::kLagkv ? task.shape.lag : 0;
    task.keys = keys.data();
    task.values = values.data();
    const std::size_t count = std::size_t{shape.num_kv_heads} * shape.num_tokens;
    const auto partitions = [&](void* space, float* out) {
      task.scores = out;
      return launch_partitions(task, space, gpu.stream());
    };
    const std::size_t space = partitions_workspace_bytes(task);
    const auto got = scored(gpu, count, space, partitions);
    // A channel's range over few tokens may be a thousandth of the values that it normalises. The
    // deviations may then be near 1000, and the softmax multiplies their relative error by their
    // size.
    check_close(got, score_layer(recipe, layer.input).scores,
                recipe.lag < 8 ? 100 * kRelative : kRelative);
    REQUIRE(scored(gpu, count, space, partitions) == got);
    // kvpress ranks must be the ranks of these scores.
    task.kvpress_ranks = true;
    const auto ranks = scored(gpu, count, space, partitions);
    for (std::size_t h = 0; h < shape.num_kv_heads; ++h) {
      for (std::uint32_t p = 0; p + 1 < task.shape.num_partitions(); ++p) {
        const std::size_t first = h * shape.num_tokens + task.shape.sinks + p * task.shape.lag;
        for (std::size_t t = first; t < first + task.shape.lag; ++t) {
          float before = 0;
          for (std::size_t u = first; u < first + task.shape.lag; ++u) {
            before += got[u] < got[t] || (got[u] == got[t] && u < t) ? 1.0f : 0.0f;
          }
          REQUIRE(ranks[t] == before / static_cast<float>(task.shape.lag));
        }
      }
    }
  }
}
