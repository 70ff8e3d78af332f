// The arena: alignment, best fit, coalescing, exhaustion, threads.
#include "cachesvc/base/arena.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace precis;

namespace {

constexpr std::size_t kMiB = 1u << 20;

std::unique_ptr<Arena> make_arena(std::size_t size_bytes) {
  auto arena = Arena::create(size_bytes);
  REQUIRE(arena.ok());
  return std::move(arena).value();
}

std::size_t offset_in(const Arena& arena, const Arena::Buffer& buffer) {
  return static_cast<std::size_t>(buffer.bytes().data() - arena.memory().data());
}

bool filled_with(MutableBytes bytes, std::byte value) {
  for (const std::byte b : bytes) {
    if (b != value) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an arena is at least as large as asked and begins on a huge page", "[unit][base]") {
  const auto arena = make_arena(3 * kMiB + 5);
  CHECK(arena->memory().size() >= 3 * kMiB + 5);
  CHECK(reinterpret_cast<std::uintptr_t>(arena->memory().data()) % (2 * kMiB) == 0);
  CHECK(arena->used_bytes() == 0);
  arena->memory().front() = std::byte{1};
  arena->memory().back() = std::byte{2};
}

TEST_CASE("an arena of no bytes or of more than any machine has is refused", "[unit][base]") {
  CHECK(Arena::create(0).status().code() == StatusCode::kInvalidArgument);
  CHECK(Arena::create(~std::size_t{0}).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("an arena larger than the machine's memory is reserved but not touched", "[unit][base]") {
  // Only twice as large, because ThreadSanitizer leaves a program few addresses.
  const auto memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto arena = make_arena(2 * memory);
  const auto buffer = arena->allocate(kMiB);
  REQUIRE(buffer.ok());
  std::memset((*buffer)->bytes().data(), 1, kMiB);
  CHECK(filled_with((*buffer)->bytes(), std::byte{1}));
}

TEST_CASE("buffers have the size asked for and 64-byte alignment", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  const std::size_t size = GENERATE(0u, 1u, 63u, 64u, 65u, 4096u, 100'000u);
  CAPTURE(size);
  const auto first = arena->allocate(size);
  const auto second = arena->allocate(size);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  for (const auto* buffer : {&*first, &*second}) {
    CHECK((*buffer)->bytes().size() == size);
    CHECK(reinterpret_cast<std::uintptr_t>((*buffer)->bytes().data()) % 64 == 0);
  }
  CHECK(offset_in(*arena, **first) != offset_in(*arena, **second));
}

TEST_CASE("a buffer shrinks in place, and pieces of the two ends stay apart", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  auto low = arena->allocate(1000).value();
  auto high = arena->allocate(1000, Arena::End::kHigh).value();
  CHECK(offset_in(*arena, *low) == 0);
  CHECK(offset_in(*arena, *high) == kMiB - 1024);
  low->bytes()[99] = std::byte{7};
  low->shrink(100);
  CHECK(low->bytes().size() == 100);
  CHECK(low->bytes()[99] == std::byte{7});
  CHECK(arena->used_bytes() == 128 + 1024);
  const auto next = arena->allocate(64).value();
  CHECK(offset_in(*arena, *next) == 128);
  high->shrink(0);
  high.reset();
  CHECK(arena->used_bytes() == 128 + 64);
}

TEST_CASE("buffers that shrink and slide down keep their bytes and leave no holes",
          "[unit][base]") {
  const auto arena = make_arena(kMiB);
  auto first = arena->allocate(300'000).value(), second = arena->allocate(300'000).value();
  auto third = arena->allocate(300'000).value();
  int filled = 0;
  for (auto* buffer : {&first, &second, &third}) {
    std::ranges::fill((*buffer)->bytes(), static_cast<std::byte>(++filled));
  }
  first->slide_down(1);  // nothing is below it
  second->slide_down(1);
  CHECK(offset_in(*arena, *first) == 0);
  first->shrink(100);
  second->shrink(250'000);  // slides over a part of itself
  third->shrink(10);
  CHECK(arena->allocate(kMiB / 2).status().code() == StatusCode::kOutOfSpace);
  for (auto* buffer : {&first, &second, &third}) (*buffer)->slide_down(kMiB);
  CHECK(arena->allocate(kMiB / 2).status().code() == StatusCode::kOutOfSpace);
  for (auto* buffer : {&first, &second, &third}) (*buffer)->slide_down(1);
  CHECK(offset_in(*arena, *second) == 128);
  CHECK(filled_with(first->bytes(), std::byte{1}));
  CHECK(filled_with(second->bytes(), std::byte{2}));
  CHECK(filled_with(third->bytes(), std::byte{3}));
  CHECK(arena->used_bytes() == 128 + 250'048 + 64);
  const auto rest = arena->allocate(arena->memory().size() - arena->used_bytes());
  CHECK(rest.ok());
  third->slide_down(1);  // no free range ends at its beginning
  CHECK(filled_with(third->bytes(), std::byte{3}));
}

TEST_CASE("used_bytes counts what is taken, alignment included, and falls to zero",
          "[unit][base]") {
  const auto arena = make_arena(kMiB);
  {
    const auto one = arena->allocate(1);
    const auto more = arena->allocate(65);
    REQUIRE(one.ok());
    REQUIRE(more.ok());
    CHECK(arena->used_bytes() == 64 + 128);
  }
  CHECK(arena->used_bytes() == 0);
}

TEST_CASE("a full arena answers kOutOfSpace and serves again once a buffer is returned",
          "[unit][base]") {
  const auto arena = make_arena(kMiB);
  auto all = arena->allocate(arena->memory().size());
  REQUIRE(all.ok());
  const auto none = arena->allocate(1);
  CHECK(none.status().code() == StatusCode::kOutOfSpace);
  std::move(all).value().reset();
  CHECK(arena->allocate(1).ok());
}

TEST_CASE("what can never fit is kInvalidArgument, even in an empty arena", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  CHECK(arena->allocate(arena->memory().size() + 1).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(arena->allocate(~std::size_t{0}).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("neighbouring free ranges become one, in whatever order they are returned",
          "[unit][base]") {
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    const auto arena = make_arena(kMiB);
    const std::size_t quarter = arena->memory().size() / 4;
    std::vector<std::unique_ptr<Arena::Buffer>> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(arena->allocate(quarter).value());
    for (const std::size_t i : order) buffers[i].reset();
    CHECK(arena->allocate(arena->memory().size()).ok());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the smallest free range that fits is taken, so that large ones stay whole",
          "[unit][base]") {
  const auto arena = make_arena(kMiB);
  auto large = arena->allocate(4096).value();
  const auto wall = arena->allocate(64).value();
  auto small = arena->allocate(128).value();
  const auto rest = arena->allocate(arena->memory().size() - 4096 - 64 - 128).value();
  const std::size_t small_offset = offset_in(*arena, *small);
  large.reset();
  small.reset();
  const auto fits = arena->allocate(100).value();
  CHECK(offset_in(*arena, *fits) == small_offset);
  CHECK(arena->allocate(4096).ok());
}

TEST_CASE("random allocations never overlap and leave nothing behind", "[unit][base]") {
  const unsigned seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto arena = make_arena(kMiB);
  struct Live {
    std::unique_ptr<Arena::Buffer> buffer;
    std::byte value;
  };
  std::vector<Live> live;
  for (int step = 0; step < 2000; ++step) {
    if (!live.empty() && random() % 3 == 0) {
      std::swap(live[random() % live.size()], live.back());
      REQUIRE(filled_with(live.back().buffer->bytes(), live.back().value));
      live.pop_back();
      continue;
    }
    if (!live.empty() && random() % 4 == 0) {
      const Live& moved = live[random() % live.size()];
      moved.buffer->shrink(moved.buffer->bytes().size() / 2);
      moved.buffer->slide_down(1);
      REQUIRE(filled_with(moved.buffer->bytes(), moved.value));
      continue;
    }
    auto buffer = arena->allocate(random() % 20'000);
    if (!buffer.ok()) {
      REQUIRE(buffer.status().code() == StatusCode::kOutOfSpace);
      continue;
    }
    const auto value = static_cast<std::byte>(step);
    std::ranges::fill((*buffer)->bytes(), value);
    live.push_back({std::move(buffer).value(), value});
  }
  for (const Live& each : live) REQUIRE(filled_with(each.buffer->bytes(), each.value));
  live.clear();
  CHECK(arena->used_bytes() == 0);
  CHECK(arena->allocate(arena->memory().size()).ok());
}

TEST_CASE("threads share an arena without overlap", "[unit][base]") {
  const auto arena = make_arena(4 * kMiB);
  std::vector<std::thread> threads;
  std::atomic<int> overlaps{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const auto value = static_cast<std::byte>(t + 1);
      for (int i = 0; i < 500; ++i) {
        const auto buffer = arena->allocate(1 + random() % 10'000);
        if (!buffer.ok()) continue;
        std::ranges::fill((*buffer)->bytes(), value);
        if (!filled_with((*buffer)->bytes(), value)) ++overlaps;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(overlaps == 0);
  CHECK(arena->used_bytes() == 0);
}
