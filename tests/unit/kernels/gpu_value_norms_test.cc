// The CUDA implementations of the value norms, against the CPU's and the definition's.
#include <catch2/catch.hpp>

#include "kernels/score/values/value_norms.h"
#include "kernels/score/values/value_norms_cuda.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// Both sides round sums of head_dim and then of `width` terms in f32, in different orders.
constexpr double kRelative = 2e-5, kAbsolute = 2e-8;

std::vector<float> device_norms(Gpu& gpu, ValueNorm norm, const LayerInput& input) {
  const std::size_t width = input.o_proj.width, dim = input.keys.head_dim;
  const DeviceBuffer values = gpu.upload(input.values);
  const std::size_t weight_bytes =
      input.num_q_heads * dim * width * dtype_size_bytes(input.o_proj.dtype);
  const DeviceBuffer weights =
      gpu.upload(std::vector<std::byte>(input.o_proj.data, input.o_proj.data + weight_bytes));
  const DeviceBuffer gram =
      gpu.upload(std::vector<float>(input.o_proj.gram.begin(), input.o_proj.gram.end()));
  const DeviceBuffer norms =
      gpu.empty(std::size_t{input.num_kv_heads()} * input.num_tokens() * sizeof(float));
  ValueNormsDevice task{};
  task.num_kv_heads = input.num_kv_heads();
  task.group = input.group();
  task.num_tokens = input.num_tokens();
  task.head_dim = input.keys.head_dim;
  task.dtype = input.values.dtype;
  task.values = values.data();
  task.width = input.o_proj.width;
  task.weights_dtype = input.o_proj.dtype;
  task.weights = weights.data();
  task.gram = data_of<float>(gram);
  task.norms = data_of<float>(norms);
  must_succeed(norm == ValueNorm::kL1Exact ? launch_l1_exact(task, gpu.stream())
                                           : launch_l2_gram(task, gpu.stream()));
  return gpu.download<float>(norms);
}

}  // namespace

TEST_CASE("value norms on the device are the CPU's within the bound", "[gpu][value_norms]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  ThreadPool pool(1);
  for (int round = 0; round < rounds(20); ++round) {
    LayerShape shape;
    shape.num_tokens = pick(rng, 1, round % 6 == 0 ? 300 : 40);
    shape.num_kv_heads = pick(rng, 1, 2);
    shape.group = pick(rng, 1, 4);
    shape.head_dim = pick(rng, 1, round % 4 == 0 ? 256 : 130);
    if (round % 18 == 5) shape.head_dim = pick(rng, 257, 400);
    shape.o_proj_width = pick(rng, 1, 150);
    shape.stride_gap = pick(rng, 0, 2);
    shape.dtype = round % 3 == 0 ? static_cast<Dtype>(pick(rng, 2, 3)) : Dtype::kBf16;
    CAPTURE(round, shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    for (const ValueNorm norm : {ValueNorm::kL1Exact, ValueNorm::kL2Gram}) {
      CAPTURE(static_cast<int>(norm));
      const auto got = device_norms(gpu, norm, layer.input);
      const auto host = value_norms({pool, detect_isa()}, norm, layer.input);
      const std::vector<double> wide(host.begin(), host.end());
      const auto expected = reference_norms(norm, layer.input);
      auto bounds = norm_rounding(norm, layer.input);
      for (double& bound : bounds) bound += kAbsolute;
      REQUIRE(first_difference(got, expected, kRelative, bounds) == "");
      for (double& bound : bounds) bound *= 2;  // both sides round
      REQUIRE(first_difference(got, wide, kRelative, bounds) == "");
      REQUIRE(device_norms(gpu, norm, layer.input) == got);
    }
  }
}
