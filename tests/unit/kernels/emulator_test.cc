// The emulator itself: it supports what kernels need, and detects their errors.
#include <cuda_runtime.h>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "kernels/common/device_code.cuh"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

Status run(void (*kernel)(std::vector<std::uint32_t>*), std::vector<std::uint32_t>& memory,
           dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
  const Stream stream = Stream::create().value();
  return launch("test", kernel, grid, block, shared_bytes, stream, &memory);
}

std::uint32_t flat_thread() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

void number_threads(std::vector<std::uint32_t>* memory) {
  const std::uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const std::uint32_t size = blockDim.x * blockDim.y * blockDim.z;
  (*memory)[block * size + flat_thread()] += block * size + flat_thread() + 1;
}

// Each thread passes its number to the thread before it, through shared memory, twice.
template <bool kWaits>
void rotate(std::vector<std::uint32_t>* memory) {
  auto* shared = shared_memory<std::uint32_t>();
  std::uint32_t mine = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    shared[threadIdx.x] = mine;
    if (kWaits) __syncthreads();
    mine = shared[(threadIdx.x + 1) % blockDim.x];
    if (kWaits) __syncthreads();
  }
  (*memory)[blockIdx.x * blockDim.x + threadIdx.x] = mine;
}

void leave_early(std::vector<std::uint32_t>*) {
  if (threadIdx.x == 3) return;
  __syncthreads();
}

void leave_warp(std::vector<std::uint32_t>* memory) {
  if (threadIdx.x == 40) return;
  (*memory)[threadIdx.x] = __shfl_xor_sync(kWholeWarp, threadIdx.x, 1);
}

void meet_otherwise(std::vector<std::uint32_t>*) {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    (void)__ballot_sync(kWholeWarp, true);
  }
}

void exchange_all(std::vector<std::uint32_t>* memory) {
  const std::uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t* out = memory->data() + threadIdx.x * 6;
  out[0] = __shfl_sync(kWholeWarp, threadIdx.x, 5);
  out[1] = __shfl_up_sync(kWholeWarp, threadIdx.x, 2);
  out[2] = __ballot_sync(kWholeWarp, lane % 3 == 0);
  out[3] = __match_any_sync(kWholeWarp, lane % 4 + warp);
  const std::uint64_t wide = __shfl_xor_sync(kWholeWarp, std::uint64_t{lane} << 40, 16);
  out[4] = static_cast<std::uint32_t>(wide >> 40);
  out[5] = atomicAdd(memory->data() + memory->size() - 1, 2u);
}

}  // namespace

TEST_CASE("every thread of every block runs once and knows its place", "[emulator]") {
  const dim3 grid(3, 2, 2), block(5, 3, 2);
  std::vector<std::uint32_t> memory(grid.count() * block.count()), expected(memory.size());
  REQUIRE(run(&number_threads, memory, grid, block) == Status{});
  std::iota(expected.begin(), expected.end(), 1u);
  CHECK(memory == expected);
}

TEST_CASE("threads of a block wait for each other", "[emulator]") {
  std::vector<std::uint32_t> memory(8 * 70);
  REQUIRE(run(&rotate<true>, memory, 8, 70, 70 * 4) == Status{});
  for (std::uint32_t i = 0; i < memory.size(); ++i) CHECK(memory[i] == (i % 70 + 2) % 70);
}

TEST_CASE("a barrier that is missing shows in what a kernel computes", "[emulator]") {
  std::vector<std::uint32_t> memory(70);
  for (int block = 0; block < 4; ++block) {
    REQUIRE(run(&rotate<false>, memory, 1, 70, 70 * 4) == Status{});
    bool right = true;
    for (std::uint32_t i = 0; i < 70; ++i) right &= memory[i] == (i + 2) % 70;
    CHECK_FALSE(right);
  }
}

TEST_CASE("threads that wait for ever are an error", "[emulator]") {
  std::vector<std::uint32_t> memory(64);
  const Status barrier = run(&leave_early, memory, dim3(2, 1), 8);
  CHECK(barrier.code() == StatusCode::kInternal);
  CHECK_THAT(barrier.to_string(),
             Catch::Contains("block (0,0,0): deadlock, thread 3 left, thread 0 waits at "
                             "__syncthreads"));
  CHECK_THAT(run(&leave_warp, memory, 1, 64).to_string(),
             Catch::Contains("thread 32 waits in __shfl_xor_sync"));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("lanes that meet in different exchanges, or without their warp, are an error",
          "[emulator]") {
  std::vector<std::uint32_t> memory(64);
  CHECK_THAT(run(&meet_otherwise, memory, 1, 32).to_string(), Catch::Contains("meet in"));
  CHECK_THAT(run(&leave_warp, memory, 1, 20).to_string(), Catch::Contains("needs a whole warp"));
}

TEST_CASE("sizes that no device takes are an error", "[emulator]") {
  std::vector<std::uint32_t> memory(4096);
  CHECK_FALSE(run(&number_threads, memory, 1, 1025).ok());
  CHECK_FALSE(run(&number_threads, memory, dim3(1, 65536), 1).ok());
  CHECK_FALSE(run(&rotate<true>, memory, 1, 32, 48 * 1024 + 1).ok());
  CHECK(run(&number_threads, memory, 0, 32) == Status{});  // launch() skips an empty grid
}

TEST_CASE("lanes of a warp see each other's words", "[emulator]") {
  std::vector<std::uint32_t> memory(64 * 6 + 1);
  REQUIRE(run(&exchange_all, memory, 1, 64) == Status{});
  for (std::uint32_t t = 0; t < 64; ++t) {
    const std::uint32_t lane = t % 32, *out = memory.data() + t * 6;
    CHECK(out[0] == t - lane + 5);
    CHECK(out[1] == (lane < 2 ? t : t - 2));
    CHECK(out[2] == 0x49249249u);
    CHECK(out[3] == 0x11111111u << lane % 4);
    CHECK(out[4] == (lane ^ 16));
  }
  CHECK(memory.back() == 128);
}

TEST_CASE("a layer that the device has no room for is compressed on the CPU", "[emulator]") {
  Rng rng(11);
  std::vector<Status> told;
  const auto backend =
      make_cuda_backend(0, 2, [&](const Status& why) { told.push_back(why); }).value();
  const auto compressor = backend->compressor().value();
  const CpuStages cpu(2);
  for (const char* text : {"external", "global_keydiff", "ada_snapkv"}) {
    Recipe recipe = parse_recipe(text).value();
    recipe.scorer = Scorer::kExternal;  // so that both sides have the same scores
    LayerShape shape;
    shape.external = true;
    shape.num_tokens = 90;
    const OwnedLayer layer = make_layer(shape, rng);
    const Compressed expected = compress(cpu, recipe, layer.input, 70);
    bool whole = false;
    for (int allocations = 0; !whole; ++allocations) {
      CAPTURE(text, allocations);
      AlignedBytes records(expected.records.bytes().size());
      LayerTurns turns;
      cuda_emulator::allocations_left = allocations;
      REQUIRE(compressor->check(recipe, layer.input) == Status{});
      REQUIRE(compressor->score() == Status{});
      REQUIRE(compressor->select(70) == Status{});
      REQUIRE(compressor->allocate(turns) == Status{});
      // After the turns, only the records' memory is allocated; a failure there fails the put.
      const bool failed = cuda_emulator::allocations_left < 0;
      const Status encoded = compressor->encode(expected.counts, expected.seats,
                                                SegmentId{{1, 2, 3}}, records.mutable_bytes());
      whole = cuda_emulator::allocations_left >= 0;
      cuda_emulator::allocations_left = -1;
      if (!failed && !whole) {
        CHECK(encoded.code() == StatusCode::kOutOfSpace);
        continue;
      }
      REQUIRE(encoded == Status{});
      CHECK(bytes_text(records.bytes()) == bytes_text(expected.records.bytes()));
    }
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].code() == StatusCode::kOutOfSpace);
}

TEST_CASE("a device that is lost is told of once, and layers go through the CPU from then on",
          "[emulator]") {
  Rng rng(12);
  std::vector<Status> told;
  const auto backend =
      make_cuda_backend(0, 2, [&](const Status& why) { told.push_back(why); }).value();
  const CpuStages cpu(2);
  const Recipe recipe = parse_recipe("knorm").value();
  const OwnedLayer layer = make_layer({}, rng);
  const Compressed expected = compress(cpu, recipe, layer.input, 12);
  const auto compressor = backend->compressor().value();
  const auto compresses = [&](LayerCompressor& on) {
    AlignedBytes records(expected.records.bytes().size());
    LayerTurns turns;
    CHECK(on.select(12) == Status{});
    CHECK(on.allocate(turns) == Status{});
    CHECK(on.encode(expected.counts, expected.seats, SegmentId{{1, 2, 3}},
                    records.mutable_bytes()) == Status{});
    CHECK(bytes_text(records.bytes()) == bytes_text(expected.records.bytes()));
  };
  // The device is lost in the middle of a layer. Then the same compressor takes the layer again,
  // and so does a compressor that is made after the loss.
  REQUIRE(compressor->check(recipe, layer.input) == Status{});
  cuda_emulator::lost = true;
  CHECK(compressor->score() == Status{});
  compresses(*compressor);
  cuda_emulator::lost = false;  // the loss was reported, so the device is not used again
  const auto another = backend->compressor().value();
  for (LayerCompressor* on : {compressor.get(), another.get()}) {
    CHECK(on->check(recipe, layer.input) == Status{});
    CHECK(on->score() == Status{});
    compresses(*on);
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].message().find("the device is lost") != std::string::npos);
}

TEST_CASE("a device that is lost before there is a compressor is told of and done without",
          "[emulator]") {
  std::vector<Status> told;
  const auto backend =
      make_cuda_backend(0, 2, [&](const Status& why) { told.push_back(why); }).value();
  cuda_emulator::lost = true;
  const auto compressor = backend->compressor();
  cuda_emulator::lost = false;
  REQUIRE(compressor.ok());
  Rng rng(14);
  const OwnedLayer layer = make_layer({}, rng);
  CHECK((*compressor)->check(parse_recipe("knorm").value(), layer.input) == Status{});
  CHECK(told.size() == 1);
}

TEST_CASE("where nobody wants to hear of it, a lost device fails its layers", "[emulator]") {
  Rng rng(13);
  const auto backend = make_cuda_backend(0, 2).value();
  const auto compressor = backend->compressor().value();
  const OwnedLayer layer = make_layer({}, rng);
  cuda_emulator::lost = true;
  CHECK(compressor->check(parse_recipe("knorm").value(), layer.input).code() ==
        StatusCode::kInternal);
  cuda_emulator::lost = false;
}
