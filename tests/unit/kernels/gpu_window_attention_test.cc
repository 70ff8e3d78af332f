// The CUDA implementation of the window-attention score, against the CPU's and the definition.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<float> scores_of(Backend& backend, const Recipe& recipe, const LayerInput& input) {
  const auto compressor = backend.compressor().value();
  REQUIRE(compressor->check(recipe, input) == Status{});
  REQUIRE(compressor->score() == Status{});
  return compressor->scores().value()->scores;
}

// Both sides round sums of head_dim products and of n exponentials in f32, in different orders.
void check_close(double got, double expected, std::size_t i) {
  if (got == expected) return;  // +infinity
  if (!(std::fabs(got - expected) <= 1e-7 + 5e-5 * std::fabs(expected))) {
    FAIL("score " << i << " is " << got << ", expected " << expected);
  }
}

}  // namespace

TEST_CASE("device scores equal the CPU's and the definition's within the bound",
          "[gpu][window_attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto cuda = make_cuda_backend(0).value();
  const auto cpu = make_cpu_backend();
  for (int round = 0; round < rounds(120); ++round) {
    LayerShape shape;
    shape.num_tokens = pick(rng, 1, round % 10 == 0 ? 1200 : 100);
    shape.group = pick(rng, 1, 4);
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.head_dim = round % 20 == 0 ? 600 : pick(rng, 1, 130);
    shape.pushed = pick(rng, 1, std::min(shape.num_tokens, 40u));
    shape.lse = pick(rng, 0, 1) == 1;
    shape.stride_gap = pick(rng, 0, 2);
    shape.dtype = static_cast<Dtype>(pick(rng, 1, 3));
    Recipe recipe;
    recipe.scorer = Scorer::kWindowAttention;
    recipe.window = recipe.recent = pick(rng, 1, 40);
    recipe.kernel = 1 + 2 * pick(rng, 0, 3);
    recipe.pool = static_cast<Pool>(pick(rng, 0, 1));
    recipe.pool_order = static_cast<PoolOrder>(pick(rng, 0, 1));
    recipe.row_reduce = static_cast<RowReduce>(pick(rng, 0, 3));
    recipe.group_reduce = static_cast<Reduce>(pick(rng, 0, 2));
    CAPTURE(round, shape.text(), recipe.window, recipe.kernel);
    const OwnedLayer layer = make_layer(shape, rng);
    const auto device = scores_of(*cuda, recipe, layer.input);
    const auto host = scores_of(*cpu, recipe, layer.input);
    for (std::size_t i = 0; i < host.size(); ++i) check_close(device[i], host[i], i);
    if (shape.num_tokens > 100 || shape.head_dim > 130) continue;
    const auto expected = reference_scores(recipe, layer.input);
    for (std::size_t i = 0; i < host.size(); ++i) check_close(device[i], expected[i], i);
  }
}

TEST_CASE("device scores of bf16 rows on tensor cores equal the CPU's within the bound",
          "[gpu][window_attention]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto cuda = make_cuda_backend(0).value();
  const auto cpu = make_cpu_backend();
  for (int round = 0; round < rounds(60); ++round) {
    LayerShape shape;
    shape.num_tokens = pick(rng, 1, round % 10 == 0 ? 700 : 150);
    shape.group = pick(rng, 1, round % 10 == 5 ? 16 : 5);
    shape.num_kv_heads = pick(rng, 1, 2);
    shape.head_dim = 8 * pick(rng, 1, round % 3 == 0 ? 32 : 16);
    shape.pushed = pick(rng, 1, std::min(shape.num_tokens, 40u));
    shape.lse = pick(rng, 0, 1) == 1;
    shape.dtype = Dtype::kBf16;
    Recipe recipe;
    recipe.scorer = Scorer::kWindowAttention;
    recipe.window = recipe.recent = pick(rng, 1, 40);
    recipe.row_reduce = static_cast<RowReduce>(pick(rng, 0, 3));
    CAPTURE(round, shape.text(), recipe.window);
    const OwnedLayer layer = make_layer(shape, rng);
    const auto device = scores_of(*cuda, recipe, layer.input);
    const auto host = scores_of(*cpu, recipe, layer.input);
    for (std::size_t i = 0; i < host.size(); ++i) check_close(device[i], host[i], i);
    REQUIRE(scores_of(*cuda, recipe, layer.input) == device);
  }
}

TEST_CASE("device scores repeat bit for bit", "[gpu][window_attention]") {
  Rng rng(1);
  LayerShape shape;
  shape.num_tokens = 1000;
  shape.head_dim = 128;
  shape.group = 4;
  shape.pushed = 32;
  shape.dtype = Dtype::kBf16;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe;
  recipe.scorer = Scorer::kWindowAttention;
  recipe.recent = 32;
  const auto cuda = make_cuda_backend(0).value();
  const auto first = scores_of(*cuda, recipe, layer.input);
  for (int i = 0; i < 3; ++i) CHECK(scores_of(*cuda, recipe, layer.input) == first);
}
