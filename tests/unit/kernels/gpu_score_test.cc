// Whole layers scored on the device, compared with score_cpu, for every recipe that the device
// supports.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/common/element_op.h"
#include "kernels/score/probe/probe.h"
#include "kernels/score/score_cuda.h"
#include "schema/src/scorers.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// A layer's inputs on the device, in the form of launch_score().
class UploadedLayer {
 public:
  UploadedLayer(Gpu& gpu, const LayerInput& in) : gpu_(gpu) {
    layer.layer = in.layer;
    layer.num_layers = in.num_layers;
    layer.begin = in.begin;
    layer.num_kv_heads = in.num_kv_heads();
    layer.group = in.group();
    layer.num_tokens = in.num_tokens();
    layer.head_dim = in.keys.head_dim;
    layer.pushed = in.queries.num_tokens;
    layer.dtype = in.keys.dtype;
    layer.keys = keep(gpu.upload(in.keys));
    layer.values = keep(gpu.upload(in.values));
    if (!in.queries.empty()) layer.queries = keep(gpu.upload(in.queries));
    layer.lse = pushed(in.lse);
    layer.external = pushed(in.scores);
    layer.query_mean = pushed(in.query_mean);
    layer.query_covariance = pushed(in.query_covariance);
    layer.gram = pushed(in.o_proj.gram);
    if (!in.probe.empty()) {
      const std::vector<float> probe = turned_probe(in);
      layer.probe = pushed(std::span<const float>(probe));
    }
    layer.rope_frequencies = pushed(in.rope_frequencies);
    layer.rope_pairs = static_cast<std::uint32_t>(in.rope_frequencies.size());
    if (in.o_proj.data == nullptr) return;
    layer.o_proj_width = in.o_proj.width;
    layer.o_proj_dtype = in.o_proj.dtype;
    layer.o_proj = pushed(
        std::span(in.o_proj.data, in.num_q_heads * in.keys.head_dim * std::size_t{in.o_proj.width} *
                                      dtype_size_bytes(in.o_proj.dtype)));
  }
  LayerDevice layer;

 private:
  const void* keep(DeviceBuffer buffer) { return buffers_.emplace_back(std::move(buffer)).data(); }
  template <typename T>
  const T* pushed(std::span<const T> values) {
    if (values.empty()) return nullptr;
    return static_cast<const T*>(keep(gpu_.upload(std::vector<T>(values.begin(), values.end()))));
  }
  Gpu& gpu_;
  std::vector<DeviceBuffer> buffers_;
};

bool has_second(const Recipe& recipe) {
  return recipe.selector == Selector::kTwoStage || recipe.selector == Selector::kThreshold;
}
bool has_weight(const Recipe& recipe) {
  return recipe.layers == LayerAllocator::kPreference || recipe.layers == LayerAllocator::kEntropy;
}

LayerScores device_scores(Gpu& gpu, const Recipe& recipe, const LayerInput& input) {
  const UploadedLayer up(gpu, input);
  const std::size_t bytes = std::size_t{input.num_kv_heads()} * input.num_tokens() * sizeof(float);
  const DeviceBuffer scores = gpu.empty(bytes), second = gpu.empty(has_second(recipe) ? bytes : 0);
  const DeviceBuffer weight = gpu.empty(has_weight(recipe) ? sizeof(float) : 0);
  const DeviceBuffer workspace = gpu.empty(score_workspace_bytes(recipe, up.layer));
  must_succeed(launch_score(
      recipe, up.layer, workspace.data(),
      {data_of<float>(scores), data_of<float>(second), data_of<float>(weight)}, gpu.stream()));
  LayerScores out;
  out.scores = gpu.download<float>(scores);
  out.second = gpu.download<float>(second);
  if (has_weight(recipe)) out.weight = gpu.download<float>(weight)[0];
  return out;
}

// Both sides round sums of head_dim products and of n weights in f32, in different orders. Scores
// of keydiff and kvdiff are differences of numbers of size 1. Logits of size 10 err by 1e-6, which
// is their weights' relative error; means over tokens are of size 1 / n.
constexpr double kRelative = 1e-4, kAbsolute = 2e-6;

void check_scores(std::span<const float> got, std::span<const float> expected,
                  std::span<const double> bounds) {
  REQUIRE(got.size() == expected.size());
  std::vector<double> wide, absolute;
  std::vector<float> ours;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {  // pushed, and passed through
      REQUIRE(std::isnan(got[i]));
      continue;
    }
    ours.push_back(got[i]);
    wide.push_back(expected[i]);
    absolute.push_back(bounds[i]);
  }
  REQUIRE(first_difference(ours, wide, kRelative, absolute) == "");
}

// Bounds for the second scores of two_stage, which are norms times scores: a norm of the Gram form
// may be the small difference of large products.
std::vector<double> second_bounds(const Recipe& recipe, const LayerInput& input,
                                  std::span<const float> scores) {
  std::vector<double> bounds(scores.size(), kAbsolute);
  if (recipe.selector != Selector::kTwoStage) return bounds;
  const std::vector<double> rounding = norm_rounding(recipe.value_norm, input);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double score = std::isnan(scores[i]) ? 0 : std::fabs(scores[i]);
    bounds[i] += 2 * rounding[i] * (score + recipe.epsilon_ppm / 1e6);  // both sides round
  }
  return bounds;
}

// Also compares NaN, which is pushed and passed through.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b,
                            [](float x, float y) { return bits_of_f32(x) == bits_of_f32(y); });
}

// Checks that the device's scores are the CPU's within the bound, and that they repeat.
void check_layer(Gpu& gpu, const Recipe& recipe, const LayerInput& input) {
  REQUIRE(scores_on_device(recipe));
  const LayerScores got = device_scores(gpu, recipe, input);
  const LayerScores expected = score_layer(recipe, input);
  const std::vector<double> plain(expected.scores.size(), kAbsolute);
  check_scores(got.scores, expected.scores, plain);
  check_scores(got.second, expected.second, second_bounds(recipe, input, expected.scores));
  // An entropy near 0 is the small difference of two sums, so most of it may be the rounding of
  // scores.
  CAPTURE(got.weight - expected.weight);
  REQUIRE(got.weight == Approx(expected.weight).epsilon(1e-3).margin(kAbsolute));
  const LayerScores again = device_scores(gpu, recipe, input);
  REQUIRE(same_bits(again.scores, got.scores));
  REQUIRE(same_bits(again.second, got.second));
  REQUIRE(again.weight == got.weight);
}

// The scorers that have no CUDA code, so that a service with a GPU computes them on the CPU.
constexpr std::array<Scorer, 0> kOnCpuAlone{};

bool is_on_cpu_alone(Scorer scorer) {
  return std::ranges::find(kOnCpuAlone, scorer) != kOnCpuAlone.end();
}

// Random parameters that validate_recipe() accepts.
Recipe random_recipe(Scorer scorer, Rng& rng) {
  for (;;) {
    Recipe r = scorer_defaults(scorer);
    if (r.window != 0) r.window = pick(rng, 1, 20);
    if (protects_window(scorer)) r.recent = r.window;
    r.kernel = 1 + 2 * pick(rng, 0, 4);
    r.pool = static_cast<Pool>(pick(rng, 0, 1));
    r.row_reduce = static_cast<RowReduce>(pick(rng, 0, 4));
    r.group_reduce = static_cast<Reduce>(pick(rng, 0, 2));
    r.pool_order = static_cast<PoolOrder>(pick(rng, 0, 3));
    r.gamma_ppm = 2'500'000;
    r.lag = pick(rng, 8, 40);  // a channel's range over fewer tokens may be close to 0
    r.seed = pick(rng, 0, 1000);
    r.sinks = pick(rng, 0, 6);
    r.protect_tail = r.is_partitioned();
    r.ea_value_norm = pick(rng, 0, 1) == 1;
    r.layers = static_cast<LayerAllocator>(pick(rng, 0, 3));
    const Selector selectors[] = {Selector::kTopk, Selector::kTopk, Selector::kTwoStage,
                                  Selector::kThreshold};
    r.selector = selectors[pick(rng, 0, 3)];
    r.value_norm = static_cast<ValueNorm>(pick(rng, 0, 2));
    if (validate_recipe(r).ok()) return r;
  }
}

// Random sizes, with all inputs pushed that the recipe needs.
LayerShape random_shape(const Recipe& recipe, int round, Rng& rng) {
  LayerShape shape;
  shape.layer = pick(rng, 0, 3);
  shape.num_layers = 4;
  shape.num_tokens = round % 8 == 0 ? pick(rng, 150, 500) : pick(rng, 1, 90);
  shape.num_kv_heads = pick(rng, 1, 3);
  shape.group = pick(rng, 1, round % 9 == 0 ? 9 : 4);
  shape.head_dim = round % 2 == 0 ? 8 * pick(rng, 1, 16) : pick(rng, 1, 80);
  if (round % 7 == 0) shape.head_dim = 8 * pick(rng, 17, 32);
  if (round % 41 == 0) shape.head_dim = pick(rng, 257, 300);  // more than tensor cores support
  // Unit keys of one channel are 1 and -1, and their mean is only the rounding error. With few
  // channels, many keys are close to a probe's anchor, and the log of their difference is not
  // exact.
  if (recipe.scorer == Scorer::kKeydiff || recipe.needs_rope()) {
    shape.head_dim = std::max(recipe.needs_probe() ? 16u : 4u, shape.head_dim);
  }
  shape.begin = pick(rng, 0, 5);
  shape.dtype = round % 3 == 0 ? Dtype::kBf16 : static_cast<Dtype>(pick(rng, 1, 3));
  if (recipe.needs_queries()) {
    shape.behind = recipe.needs_lse();
    shape.lse = shape.behind || pick(rng, 0, 1) == 1;
    shape.pushed = pick(rng, 1, std::min(shape.num_tokens, 40u));
    if (recipe.scorer == Scorer::kObservedMean) shape.pushed = shape.num_tokens;
    if (shape.behind) shape.pushed = pick(rng, 1, 60);
  }
  shape.query_stats = recipe.needs_query_stats();
  if (recipe.needs_o_proj()) shape.o_proj_width = pick(rng, 1, 70);
  if (recipe.needs_rope()) shape.rope_pairs = pick(rng, 0, shape.head_dim / 2);
  shape.probe = recipe.needs_probe();
  shape.external = recipe.needs_scores();
  return shape;
}

}  // namespace

TEST_CASE("a layer scored on the device is the CPU's within the bound, whatever the recipe",
          "[gpu][score]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  for (int round = 0; round < rounds(120); ++round) {
    const auto scorer = static_cast<Scorer>(static_cast<std::size_t>(round) % kScorerWords.size());
    const Recipe recipe = random_recipe(scorer, rng);
    REQUIRE(scores_on_device(recipe) != is_on_cpu_alone(scorer));
    if (is_on_cpu_alone(scorer)) continue;
    const LayerShape shape = random_shape(recipe, round, rng);
    CAPTURE(round, canonical_recipe(recipe), shape.text());
    check_layer(gpu, recipe, make_layer(shape, rng).input);
  }
}

TEST_CASE("every preset's layers are scored on the device, if its scorer has code for it",
          "[gpu][score]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  int round = 1;
  for (const std::string& name : preset_names()) {
    Recipe recipe = parse_recipe(name).value();
    REQUIRE(scores_on_device(recipe) != is_on_cpu_alone(recipe.scorer));
    if (is_on_cpu_alone(recipe.scorer)) continue;
    const LayerShape shape = random_shape(recipe, round++, rng);
    CAPTURE(name, shape.text());
    check_layer(gpu, recipe, make_layer(shape, rng).input);
  }
}

TEST_CASE("what the device does not score it refuses, writing nothing", "[gpu][score]") {
  Rng rng(1);
  Gpu gpu;
  LayerShape shape;
  shape.pushed = 4;
  const OwnedLayer layer = make_layer(shape, rng);
  const UploadedLayer up(gpu, layer.input);
  Recipe recipe = scorer_defaults(Scorer::kWindowAttention);
  recipe.kernel = 35;
  CHECK(scores_on_device(recipe));
  recipe.pool_order = PoolOrder::kPoolRowsGroup;  // the kernel is too wide to pool single rows
  REQUIRE_FALSE(scores_on_device(recipe));
  const DeviceBuffer scores = gpu.upload(std::vector<float>(80, 7.0f));
  CHECK(launch_score(recipe, up.layer, nullptr, {data_of<float>(scores)}, gpu.stream()).code() ==
        StatusCode::kUnsupported);
  CHECK(gpu.download<float>(scores) == std::vector<float>(80, 7.0f));
}

TEST_CASE("a scorer without a CUDA implementation is scored on the CPU", "[gpu][score]") {
  Recipe recipe;
  recipe.scorer = static_cast<Scorer>(255);
  CHECK_FALSE(scores_on_device(recipe));
}

TEST_CASE("a scorer's workspace is below a twentieth of K at a layer of 32K tokens",
          "[gpu][score]") {
  // Llama 3 8B's layer: K is 64 MiB. Only sizes matter.
  LayerDevice layer;
  layer.num_kv_heads = 8;
  layer.group = 4;
  layer.num_tokens = 32 * 1024;
  layer.head_dim = 128;
  layer.dtype = Dtype::kBf16;
  layer.rope_pairs = 64;
  layer.o_proj_width = 4096;
  const std::size_t keys = std::size_t{8} * 32 * 1024 * 128 * 2;
  for (const std::string& name : preset_names()) {
    const Recipe recipe = parse_recipe(name).value();
    // If all queries observe, their log-sum-exps alone take a sixteenth.
    const bool all_observe = recipe.window == 0 && recipe.needs_queries();
    layer.pushed = recipe.window != 0 ? recipe.window : layer.num_tokens;
    layer.pushed = std::min(layer.pushed, recipe.queries_max(layer.num_tokens));
    CAPTURE(name, score_workspace_bytes(recipe, layer));
    CHECK(score_workspace_bytes(recipe, layer) <= keys / (all_observe ? 12 : 20));
  }
}
