// The CUDA implementation of attention over ragged heads, against the CPU's and sums in f64.
#include <catch2/catch.hpp>

#include "kernels/attend/ragged_attention_cuda.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/ragged_problem.h"

namespace precis::kernels::test {
namespace {

std::vector<float> device_attention(Gpu& gpu, const RaggedProblem& p) {
  std::vector<DeviceBuffer> memory;
  std::vector<RaggedRows> rows;
  std::uint32_t largest = 0;
  for (const OwnedRows& part : p.parts) {
    if (part.count == 0) continue;
    memory.push_back(gpu.upload(part.keys));
    memory.push_back(gpu.upload(part.values));
    rows.push_back({part.head, part.count, memory.end()[-2].data(), memory.back().data()});
    largest = std::max(largest, part.count);
  }
  const DeviceBuffer queries = gpu.upload(p.queries);
  const DeviceBuffer out = gpu.empty(p.queries.size() * sizeof(float));
  if (rows.empty()) return std::vector<float>(p.queries.size());
  const DeviceBuffer table = gpu.upload(rows);
  RaggedAttentionDevice task{p.heads,
                             p.group,
                             p.dim,
                             p.dtype,
                             p.scale,
                             data_of<float>(queries),
                             data_of<RaggedRows>(table),
                             static_cast<std::uint32_t>(rows.size()),
                             largest,
                             nullptr,
                             data_of<float>(out)};
  const DeviceBuffer work = gpu.empty(ragged_work_floats(task) * sizeof(float));
  task.work = data_of<float>(work);
  must_succeed(launch_ragged_attention(task, gpu.stream()));
  return gpu.download<float>(out);
}

}  // namespace

TEST_CASE("attention over ragged heads on the device is the softmax of their rows",
          "[gpu][attend]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Gpu gpu;
  const RaggedAttention on_cpu(1);
  for (int round = 0; round < rounds(12); ++round) {
    constexpr std::uint32_t kDims[] = {64, 128, 80, 9, 256};
    const auto dtype = static_cast<Dtype>(1 + round % 3);
    RaggedProblem p = random_problem(random, dtype, static_cast<std::uint32_t>(1 + random() % 6),
                                     kDims[round % 5]);
    for (OwnedRows& part : p.parts) part.count = std::min(part.count, 300u);
    CAPTURE(round, dtype_name(dtype), p.group, p.dim);
    const auto got = device_attention(gpu, p);
    const auto expected = p.reference();
    const auto host = p.attend(on_cpu).value();
    double worst = 0, apart = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - expected[i]));
      apart = std::max<double>(apart, std::abs(got[i] - host[i]));
    }
    CHECK(worst < 2e-5);
    CHECK(apart < 4e-5);
    CHECK(device_attention(gpu, p) == got);
  }
}

}  // namespace precis::kernels::test
