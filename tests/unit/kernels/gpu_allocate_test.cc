// The CUDA implementation of allocate gives the CPU's turns, seat for seat.
#include <catch2/catch.hpp>

#include "kernels/allocate/allocate_cuda.h"
#include "kernels/common/segment_shape.h"
#include "kernels/select/best_tokens.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// The first `count` turns.
std::vector<std::uint16_t> device_turns(Gpu& gpu, const Recipe& recipe, const LayerInput& input,
                                        const LayerScores& scores, const RetentionOrders& orders,
                                        std::uint64_t slots, std::size_t count) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, n);
  std::vector<std::uint32_t> best, sizes;
  for (std::uint32_t h = 0; h < num_heads; ++h) {
    sizes.push_back(static_cast<std::uint32_t>(orders.order[h].size() - orders.protected_count));
    append_best(scores.scores.data() + std::size_t{h} * n, shape.sinks, n - shape.recent,
                sizes.back(), best);
    best.resize(std::size_t{h + 1} * n);
  }
  const DeviceBuffer of_scores = gpu.upload(scores.scores), of_best = gpu.upload(best);
  const DeviceBuffer of_sizes = gpu.upload(sizes);
  const DeviceBuffer heads = gpu.empty(slots * sizeof(std::uint16_t));
  AllocateDevice task;
  task.uniform = recipe.heads == HeadAllocator::kUniform;
  task.guarantee = Guarantee::of(recipe);
  task.num_heads = num_heads;
  task.num_tokens = task.best_stride = n;
  task.protected_count = orders.protected_count;
  task.slots = slots;
  task.scores = data_of<float>(of_scores);
  task.best = data_of<std::uint32_t>(of_best);
  task.sizes = data_of<std::uint32_t>(of_sizes);
  task.heads = data_of<std::uint16_t>(heads);
  must_succeed(launch_allocate(task, gpu.stream()));
  auto turns = gpu.download<std::uint16_t>(heads);
  turns.resize(count);
  return turns;
}

}  // namespace

TEST_CASE("turns made on the device are the CPU's", "[gpu][allocate]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  const CpuStages cpu(2);
  for (int round = 0; round < 300; ++round) {
    LayerShape shape;
    shape.num_kv_heads = round % 10 == 0 ? pick(rng, 9, 32) : pick(rng, 1, 8);
    shape.num_tokens = round % 15 == 0 ? pick(rng, 400, 1500) : pick(rng, 1, 200);
    shape.head_dim = 1;
    shape.external = true;
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe = scorer_defaults(Scorer::kExternal);
    recipe.sinks = pick(rng, 0, 6);
    recipe.recent = pick(rng, 0, 40);
    recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 2));
    recipe.ada_mode =
        pick(rng, 0, 1) == 0 ? AdaMode::kGuaranteeInclWindow : AdaMode::kGuaranteeExclWindow;
    recipe.ada_alpha_ppm = pick(rng, 0, 10) * 100'000;
    if (pick(rng, 0, 1) == 0) recipe.count_rule = CountRule::kKvpressDouble;
    LayerScores scores{layer.scores, {}, 0};
    if (pick(rng, 0, 1) == 0) {  // heads of very different worth
      for (std::size_t i = 0; i < scores.scores.size(); ++i) {
        scores.scores[i] = static_cast<float>(pick(rng, 0, 1000)) *
                           static_cast<float>(1 + 3 * (i / shape.num_tokens));
      }
    }
    const std::uint64_t all = std::uint64_t{shape.num_kv_heads} * shape.num_tokens;
    const std::uint64_t slots = pick(rng, 0, 3) == 0 ? all : rng() % (all + 1);
    CAPTURE(round, shape.text(), canonical_recipe(recipe), slots);
    RetentionOrders orders;
    LayerTurns expected;
    REQUIRE(cpu.select(recipe, layer.input, scores, slots, orders).ok());
    REQUIRE(cpu.allocate(recipe, layer.input, scores, orders, slots, expected).ok());
    REQUIRE(device_turns(gpu, recipe, layer.input, scores, orders, slots, expected.heads.size()) ==
            expected.heads);
  }
}

TEST_CASE("a contest of more heads than a warp has lanes is refused", "[gpu][allocate]") {
  Gpu gpu;
  AllocateDevice task;
  task.num_heads = kContestHeadsMax + 1;
  task.slots = 1;
  CHECK(launch_allocate(task, gpu.stream()).code() == StatusCode::kUnsupported);
}
