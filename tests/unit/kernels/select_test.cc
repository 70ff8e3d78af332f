// Stage select: the retention order of every head.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

RetentionOrders orders_of(const Recipe& recipe, const LayerInput& input,
                          const std::vector<float>& scores) {
  const auto backend = make_cpu_backend(2);
  RetentionOrders orders;
  REQUIRE(backend->select(recipe, input, scores, orders).ok());
  return orders;
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
    Recipe recipe;
    recipe.sinks = pick(rng, 0, 6);
    recipe.recent = pick(rng, 0, 6);
    if (pick(rng, 0, 1) == 1) {
      recipe.lag = pick(rng, 1, 9);
      recipe.scorer = Scorer::kLagkv;
      recipe.protect_tail = true;
      recipe.recent = 0;
      if (pick(rng, 0, 1) == 1) recipe.selector = Selector::kPartitionTopk;
    }
    CAPTURE(round, shape.text(), recipe.sinks, recipe.recent, recipe.lag);
    const auto got = orders_of(recipe, layer.input, layer.scores);
    const auto expected = reference_orders(recipe, layer.input, layer.scores);
    REQUIRE(got.protected_count == expected.protected_count);
    REQUIRE(got.order == expected.order);
  }
}
