// The CUDA implementation of select gives the CPU's orders, token for token.
#include <catch2/catch.hpp>

#include "kernels/select/best_tokens.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/select_cuda.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// The first wanted[h] tokens of every head's order.
std::vector<std::vector<std::uint32_t>> device_orders(Gpu& gpu, const Recipe& recipe,
                                                      const LayerInput& input,
                                                      const LayerScores& scores,
                                                      const std::vector<std::uint32_t>& wanted) {
  SelectDevice task = SelectDevice::of(recipe, input);
  const std::uint32_t n = input.num_tokens(), guarded = task.shape.protected_count();
  std::vector<std::uint32_t> limits;
  for (const std::uint32_t count : wanted) limits.push_back(count - guarded);
  const DeviceBuffer first = gpu.upload(scores.scores), second = gpu.upload(scores.second);
  const DeviceBuffer of_limits = gpu.upload(limits);
  const DeviceBuffer order = gpu.empty(wanted.size() * n * sizeof(std::uint32_t));
  task.scores = data_of<float>(first);
  task.second = data_of<float>(second);
  task.limits = data_of<std::uint32_t>(of_limits);
  task.order = data_of<std::uint32_t>(order);
  REQUIRE(select_workspace_bytes(task) <= 8 * scores.scores.size() + 256);
  const DeviceBuffer workspace = gpu.empty(select_workspace_bytes(task));
  must_succeed(launch_select(task, workspace.data(), gpu.stream()));
  const auto all = gpu.download<std::uint32_t>(order);
  std::vector<std::vector<std::uint32_t>> orders;
  for (std::size_t h = 0; h < wanted.size(); ++h) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(h * n);
    orders.emplace_back(begin, begin + wanted[h]);
  }
  return orders;
}

Recipe random_recipe(Rng& rng, std::uint32_t tokens) {
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.selector = static_cast<Selector>(pick(rng, 0, 4));
  recipe.sinks = pick(rng, 0, 6);
  recipe.recent = pick(rng, 0, 40);
  recipe.lag = pick(rng, 1, 2 * tokens);
  recipe.chunk = pick(rng, 1, 30);
  recipe.first_stage_ppm = pick(rng, 0, 10) * 100'000;
  recipe.mass_ppm = pick(rng, 1, 10) * 100'000;
  recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 1));
  if (pick(rng, 0, 1) == 0) recipe.count_rule = CountRule::kKvpressDouble;
  if (pick(rng, 0, 3) == 0) recipe.layers = LayerAllocator::kGlobalFlat;
  if (recipe.selector != Selector::kPartitionTopk && pick(rng, 0, 4) > 0) return recipe;
  recipe.scorer = Scorer::kLagkv;
  recipe.lag = pick(rng, 1, 40);
  recipe.protect_tail = true;
  recipe.recent = 0;
  return recipe;
}

}  // namespace

TEST_CASE("orders made on the device are the CPU's", "[gpu][select]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  const CpuStages cpu(2);
  for (int round = 0; round < 400; ++round) {
    LayerShape shape;
    shape.num_tokens = round % 20 == 0 ? pick(rng, 1000, 6000) : pick(rng, 1, 300);
    shape.num_kv_heads = pick(rng, 1, 4);
    shape.head_dim = 1;
    shape.begin = pick(rng, 0, 5);
    shape.external = true;
    const OwnedLayer layer = make_layer(shape, rng);
    const Recipe recipe = random_recipe(rng, shape.num_tokens);
    const std::uint64_t all = std::uint64_t{shape.num_kv_heads} * shape.num_tokens;
    LayerInput input = layer.input;
    input.entries = 1 + rng() % all;
    LayerScores scores{layer.scores, make_layer(shape, rng).scores, 0};
    if (pick(rng, 0, 1) == 0) {  // few ties, numbers of every size
      for (float& score : scores.scores) {
        score = static_cast<float>(static_cast<std::int64_t>(rng() >> pick(rng, 0, 60))) - 100.0f;
      }
    }
    const std::uint64_t slots = pick(rng, 0, 3) == 0 ? all : rng() % (all + 1);
    CAPTURE(round, shape.text(), canonical_recipe(recipe), slots);
    RetentionOrders expected;
    REQUIRE(cpu.select(recipe, input, scores, slots, expected).ok());
    std::vector<std::uint32_t> wanted;
    for (const auto& order : expected.order) {
      wanted.push_back(static_cast<std::uint32_t>(order.size()));
    }
    REQUIRE(device_orders(gpu, recipe, input, scores, wanted) == expected.order);
  }
}

TEST_CASE("best tokens of many heads are the CPU's, whatever is ranked", "[gpu][select]") {
  Rng rng(5);
  Gpu gpu;
  constexpr std::uint32_t kHeads = 9, kTokens = 20'000, kFirst = 3, kLast = kTokens - 7;
  std::vector<float> scores(kHeads * kTokens);
  std::normal_distribution<float> normal;
  for (float& score : scores) score = normal(rng);
  std::fill_n(scores.begin() + kTokens, kTokens, 1.5f);  // a head of equal scores
  std::vector<std::uint32_t> limits;
  for (std::uint32_t h = 0; h < kHeads; ++h) limits.push_back(pick(rng, 0, kLast - kFirst));
  limits[2] = 0;
  limits[3] = 1;
  limits[4] = kLast - kFirst;
  const DeviceBuffer of_scores = gpu.upload(scores), of_limits = gpu.upload(limits);
  const DeviceBuffer order = gpu.empty(scores.size() * sizeof(std::uint32_t));
  const BestTokensDevice task{data_of<float>(of_scores),
                              kHeads,
                              kTokens,
                              kFirst,
                              kLast,
                              data_of<std::uint32_t>(of_limits),
                              data_of<std::uint32_t>(order),
                              2,
                              kTokens};
  const DeviceBuffer workspace = gpu.empty(best_tokens_workspace_bytes(task));
  must_succeed(launch_best_tokens(task, workspace.data(), gpu.stream()));
  const auto got = gpu.download<std::uint32_t>(order);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    std::vector<std::uint32_t> expected;
    append_best(scores.data() + h * kTokens, kFirst, kLast, limits[h], expected);
    REQUIRE(std::equal(expected.begin(), expected.end(), got.begin() + h * kTokens + 2));
  }
}
