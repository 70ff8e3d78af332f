// The CUDA implementation of encode writes the CPU's records, byte for byte.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/encode/encode_cuda.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

// Rows of different lengths, padded to the longest.
std::vector<std::uint32_t> padded(const std::vector<std::vector<std::uint32_t>>& rows,
                                  std::uint32_t stride) {
  std::vector<std::uint32_t> out(rows.size() * stride, 0xdeadbeef);
  for (std::size_t h = 0; h < rows.size(); ++h) {
    std::copy(rows[h].begin(), rows[h].end(), out.begin() + h * stride);
  }
  return out;
}

struct Encoded {
  std::vector<std::byte> records;
  bool too_large;
};

Encoded encoded(Gpu& gpu, const LayerInput& input, const Compressed& c, Encoding encoding,
                bool seated) {
  const EntryForm form{input.keys.head_dim, input.keys.dtype, encoding};
  const std::uint32_t heads = input.num_kv_heads(), n = input.num_tokens();
  std::vector<EncodeHead> records;
  std::uint64_t offset = 0;
  for (const std::uint32_t count : c.counts) {
    records.push_back({offset, count});
    offset += RecordLayout::of(count, form).size;
  }
  const DeviceBuffer keys = gpu.upload(input.keys), values = gpu.upload(input.values);
  const DeviceBuffer scores = gpu.upload(c.scores.scores), of_heads = gpu.upload(records);
  const DeviceBuffer order = gpu.upload(padded(c.orders.order, n));
  const DeviceBuffer seats = gpu.upload(padded(c.seats, n)), out = gpu.empty(offset);
  const DeviceBuffer too_large = gpu.upload(std::vector<std::uint32_t>{0});
  EncodeDevice task{};
  task.layer = input.layer;
  task.num_kv_heads = heads;
  task.num_tokens = task.order_stride = task.seat_stride = n;
  task.begin = input.begin;
  task.form = form;
  task.segment = SegmentId{{1, 2, 3}};
  task.keys = keys.data();
  task.values = values.data();
  task.scores = data_of<float>(scores);
  task.order = data_of<std::uint32_t>(order);
  task.seats = seated ? data_of<std::uint32_t>(seats) : nullptr;
  task.heads = data_of<EncodeHead>(of_heads);
  task.count_max = *std::max_element(c.counts.begin(), c.counts.end());
  task.records = out.data();
  task.too_large = too_large.as<std::uint32_t>();
  must_succeed(launch_encode(task, gpu.stream()));
  return {gpu.download<std::byte>(out), gpu.download<std::uint32_t>(too_large).front() != 0};
}

void check_equal(Gpu& gpu, const LayerInput& input, const Recipe& recipe, std::uint64_t entries) {
  const CpuStages cpu(2);
  const Compressed c = compress(cpu, recipe, input, entries);
  const Encoded sealed = encoded(gpu, input, c, recipe.encoding, true);
  REQUIRE(bytes_text(sealed.records) == bytes_text(c.records.bytes()));
  REQUIRE_FALSE(sealed.too_large);
  AlignedBytes unsealed(c.records.bytes().size());
  must_succeed(cpu.encode(input, c.scores, c.orders, c.counts, {}, SegmentId{{1, 2, 3}},
                          unsealed.mutable_bytes(), recipe.encoding));
  REQUIRE(bytes_text(encoded(gpu, input, c, recipe.encoding, false).records) ==
          bytes_text(unsealed.bytes()));
}

Encoding any_encoding(Rng& rng, std::uint32_t head_dim) {
  return static_cast<Encoding>(pick(rng, 0, head_dim % 2 == 0 ? 2 : 1));
}

}  // namespace

TEST_CASE("records made on the device are the CPU's", "[gpu][encode]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  Gpu gpu;
  for (int round = 0; round < 200; ++round) {
    LayerShape shape;
    shape.num_layers = pick(rng, 1, 3);
    shape.layer = pick(rng, 0, shape.num_layers - 1);
    shape.num_kv_heads = pick(rng, 1, 4);
    shape.num_tokens = round % 10 == 0 ? pick(rng, 300, 900) : pick(rng, 1, 150);
    shape.head_dim = round % 3 == 0 ? 8 * pick(rng, 1, 32) : pick(rng, 1, 256);
    if (round % 4 == 0) shape.head_dim = pick(rng, 1, 4);  // short hash inputs
    shape.begin = pick(rng, 0, 100);
    shape.stride_gap = pick(rng, 0, 3);
    shape.external = true;
    shape.dtype = pick_dtype(rng);
    CAPTURE(round, shape.text());
    const OwnedLayer layer = make_layer(shape, rng);
    Recipe recipe;
    recipe.scorer = Scorer::kExternal;
    recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 1));
    recipe.encoding = any_encoding(rng, shape.head_dim);
    const std::uint32_t all = shape.num_layers * shape.num_kv_heads * shape.num_tokens;
    CAPTURE(canonical_recipe(recipe));
    check_equal(gpu, layer.input, recipe, pick(rng, 1, all));
  }
}

TEST_CASE("records of long rows are the CPU's", "[gpu][encode]") {
  Rng rng(3);
  Gpu gpu;
  LayerShape shape;
  shape.num_tokens = 130;
  shape.head_dim = 1024;  // limits::kHeadDimMax: more than one round of the hash's partial sums
  shape.external = true;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe;
  recipe.scorer = Scorer::kExternal;
  recipe.encoding = GENERATE(from_range(kEncodings));
  check_equal(gpu, layer.input, recipe, 2 * 130);
}

TEST_CASE("the device tells of rows that are too large for their code", "[gpu][encode]") {
  Rng rng(4);
  Gpu gpu;
  LayerShape shape;
  shape.dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  shape.head_dim = 64;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = parse_recipe("knorm").value();
  recipe.encoding = GENERATE(Encoding::kInt8, Encoding::kInt4, Encoding::kK8V4, Encoding::kK6V4);
  const Compressed c = compress(CpuStages(1), recipe, layer.input, 10);
  // The row gets the largest number twice: the step is rounded up, and no f32 holds the sum.
  const std::size_t size = dtype_size_bytes(shape.dtype);
  const std::uint32_t largest = shape.dtype == Dtype::kBf16 ? 0x7f7fu : 0x7f7fffffu;
  auto* const row = const_cast<std::byte*>(layer.input.values.row(1, c.orders.order[1].front()));
  std::memcpy(row, &largest, size);
  std::memcpy(row + size, &largest, size);
  CHECK(encoded(gpu, layer.input, c, recipe.encoding, true).too_large);
}
