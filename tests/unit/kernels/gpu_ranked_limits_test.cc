// The CUDA code that decides how far heads are ranked gives the CPU's limits, head for head.
#include <catch2/catch.hpp>

#include "kernels/select/best_tokens.h"
#include "kernels/select/ranked_limits_cuda.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<std::uint32_t> device_limits(Gpu& gpu, const Recipe& recipe, const SegmentShape& shape,
                                         std::uint32_t num_heads, std::uint64_t slots,
                                         const std::vector<float>& scores) {
  RankedLimitsDevice task = RankedLimitsDevice::of(recipe, shape, num_heads, slots);
  const DeviceBuffer of_scores = gpu.upload(scores);
  const DeviceBuffer limits = gpu.empty(num_heads * sizeof(std::uint32_t));
  task.scores = data_of<float>(of_scores);
  task.limits = data_of<std::uint32_t>(limits);
  const DeviceBuffer workspace = gpu.empty(ranked_limits_workspace_bytes(task));
  must_succeed(launch_ranked_limits(task, workspace.data(), gpu.stream()));
  return gpu.download<std::uint32_t>(limits);
}

// The CPU's limits: the tokens that select_cpu appends behind the protected ones.
std::vector<std::uint32_t> host_limits(const CpuStages& cpu, const Recipe& recipe,
                                       const LayerInput& input, const LayerScores& scores,
                                       std::uint64_t slots) {
  RetentionOrders orders;
  must_succeed(cpu.select(recipe, input, scores, slots, orders));
  std::vector<std::uint32_t> limits;
  for (const auto& order : orders.order) {
    limits.push_back(static_cast<std::uint32_t>(order.size()) - orders.protected_count);
  }
  return limits;
}

Recipe random_recipe(Rng& rng) {
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.sinks = pick(rng, 0, 6);
  recipe.recent = pick(rng, 0, 40);
  recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 2));
  recipe.ada_mode = static_cast<AdaMode>(pick(rng, 0, 3));
  recipe.ada_alpha_ppm = pick(rng, 0, 10) * 100'000;
  if (pick(rng, 0, 5) == 0) recipe.layers = LayerAllocator::kGlobalFlat;
  if (pick(rng, 0, 5) == 0) recipe.heads = HeadAllocator::kTable;
  return recipe;
}

// Leaves the scores, which have ties, NaN and infinities; or sets scores with few ties that differ
// from head to head; or gives all tokens of a head the same score.
void fill_scores(Rng& rng, std::uint32_t num_heads, std::vector<float>& scores) {
  const std::size_t n = scores.size() / num_heads;
  const std::uint32_t kind = pick(rng, 0, 3);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < scores.size() && kind > 0; ++i) {
    const auto head = static_cast<float>(i / n);
    scores[i] = kind == 1 ? normal(rng) + head : kind == 2 ? head : normal(rng) * (head + 1);
  }
}

}  // namespace

TEST_CASE("limits of ranked heads made on the device are the CPU's", "[gpu][ranked_limits]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  const CpuStages cpu(1);
  for (int round = 0; round < rounds(300); ++round) {
    LayerShape layer_shape;
    layer_shape.num_tokens = round % 4 == 0 ? pick(rng, 2000, 9000) : pick(rng, 1, 300);
    layer_shape.num_kv_heads = pick(rng, 1, round % 30 == 0 ? 40 : 8);
    layer_shape.head_dim = 1;
    layer_shape.begin = pick(rng, 0, 5);
    layer_shape.external = true;
    const OwnedLayer layer = make_layer(layer_shape, rng);
    LayerScores scores{layer.scores, {}, 0};
    fill_scores(rng, layer_shape.num_kv_heads, scores.scores);
    const Recipe recipe = random_recipe(rng);
    const std::uint64_t all = scores.scores.size();
    const std::uint64_t slots = pick(rng, 0, 3) == 0 ? all : rng() % (all / pick(rng, 1, 9) + 1);
    CAPTURE(round, layer_shape.text(), canonical_recipe(recipe), slots);
    const SegmentShape shape =
        SegmentShape::of(recipe, 0, layer_shape.begin, layer_shape.num_tokens);
    const auto got =
        device_limits(gpu, recipe, shape, layer_shape.num_kv_heads, slots, scores.scores);
    REQUIRE(got == host_limits(cpu, recipe, layer.input, scores, slots));
  }
}

TEST_CASE("where the sample misses what few tokens hold, a wider bound is taken as on the CPU",
          "[gpu][ranked_limits]") {
  Gpu gpu;
  const CpuStages cpu(1);
  constexpr std::uint32_t kTokens = 8 * 2048;  // every eighth is sampled
  LayerInput input = sizes_only(2, kTokens);
  LayerScores scores;
  for (std::uint32_t i = 0; i < 2 * kTokens; ++i) {
    scores.scores.push_back(i % 8 == 0 ? 2.0f + static_cast<float>(i % 97)
                                       : -1.0f - static_cast<float>(i % 89));
  }
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.heads = HeadAllocator::kFlat;
  const SegmentShape shape = SegmentShape::of(recipe, 0, 0, kTokens);
  for (const std::uint64_t slots : {100u, 5000u, 12'000u, 20'000u}) {
    CAPTURE(slots);
    CHECK(device_limits(gpu, recipe, shape, 2, slots, scores.scores) ==
          host_limits(cpu, recipe, input, scores, slots));
  }
}
