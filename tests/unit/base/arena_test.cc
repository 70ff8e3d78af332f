// The arena: pages, best fit, coalescing, pages that lie apart, exhaustion, threads.
#include "cachesvc/base/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

TEST_CASE("buffers have the size asked for and begin on a page", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  const std::size_t size = GENERATE(0u, 1u, 63u, 64u, 65u, 4096u, 100'000u);
  CAPTURE(size);
  const auto first = arena->allocate(size);
  const auto second = arena->allocate(size);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  for (const auto* buffer : {&*first, &*second}) {
    CHECK((*buffer)->bytes().size() == size);
    CHECK(reinterpret_cast<std::uintptr_t>((*buffer)->bytes().data()) % Arena::taken_bytes(1) == 0);
  }
  CHECK(offset_in(*arena, **first) != offset_in(*arena, **second));
}

TEST_CASE("a buffer shrinks in place, and pieces of the two ends stay apart", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  const std::size_t page = Arena::taken_bytes(1);
  auto low = arena->allocate(2 * page).value();
  auto high = arena->allocate(page, Arena::End::kHigh).value();
  CHECK(offset_in(*arena, *low) == 0);
  CHECK(offset_in(*arena, *high) == kMiB - page);
  low->bytes()[99] = std::byte{7};
  low->shrink(100);
  CHECK(low->bytes().size() == 100);
  CHECK(low->bytes()[99] == std::byte{7});
  CHECK(arena->used_bytes() == 2 * page);
  const auto next = arena->allocate(64).value();
  CHECK(offset_in(*arena, *next) == page);
  high->shrink(0);
  high.reset();
  CHECK(arena->used_bytes() == 2 * page);
}

TEST_CASE("used_bytes counts the pages that are taken, and falls to zero", "[unit][base]") {
  const auto arena = make_arena(kMiB);
  const std::size_t page = Arena::taken_bytes(1);
  {
    const auto one = arena->allocate(1);
    const auto more = arena->allocate(page + 1);
    REQUIRE(one.ok());
    REQUIRE(more.ok());
    CHECK(arena->used_bytes() == 3 * page);
  }
  CHECK(arena->used_bytes() == 0);
}

TEST_CASE("a buffer takes free pages that lie apart, if none lie together, and gives them back",
          "[unit][base]") {
  const bool pinned = GENERATE(false, true);
  const auto arena = make_arena(kMiB);
  if (pinned) arena->pin();
  const std::size_t page = Arena::taken_bytes(1), pages = kMiB / page;
  std::vector<std::unique_ptr<Arena::Buffer>> buffers;
  for (std::size_t i = 0; i < pages; ++i) {
    buffers.push_back(arena->allocate(page).value());
    std::ranges::fill(buffers.back()->bytes(), static_cast<std::byte>(i));
  }
  for (std::size_t i = 0; i < pages; i += 2) buffers[i].reset();  // every other page is free
  CHECK(arena->allocate_together(page + 1).status().code() == StatusCode::kOutOfSpace);
  auto apart = arena->allocate(kMiB / 2).value();
  CHECK(arena->allocate(1).status().code() == StatusCode::kOutOfSpace);
  std::ranges::fill(apart->bytes(), std::byte{200});
  for (std::size_t i = 1; i < pages; i += 2) {
    REQUIRE(filled_with(buffers[i]->bytes(), static_cast<std::byte>(i)));
  }
  CHECK(arena->used_bytes() == kMiB);
  apart->shrink(3 * page - 1);
  CHECK(filled_with(apart->bytes(), std::byte{200}));
  CHECK(arena->used_bytes() == kMiB / 2 + 3 * page);
  apart.reset();
  for (std::size_t i = 0; i < pages; i += 2) {
    buffers[i] = arena->allocate(page).value();
    std::ranges::fill(buffers[i]->bytes(), static_cast<std::byte>(i));
  }
  for (std::size_t i = 0; i < pages; ++i) {
    REQUIRE(filled_with(buffers[i]->bytes(), static_cast<std::byte>(i)));
  }
  buffers.clear();
  CHECK(arena->allocate_together(kMiB).ok());
}

TEST_CASE("pages that lie apart go back to the machine, unless the arena is pinned",
          "[unit][base]") {
  const bool pinned = GENERATE(false, true);
  const auto arena = make_arena(kMiB);
  if (pinned) arena->pin();
  const std::size_t page = Arena::taken_bytes(1), pages = kMiB / page;
  std::ranges::fill(arena->memory(), std::byte{1});
  std::vector<std::unique_ptr<Arena::Buffer>> buffers;
  for (std::size_t i = 0; i < pages; ++i) buffers.push_back(arena->allocate(page).value());
  for (std::size_t i = 0; i < pages; i += 2) buffers[i].reset();
  const auto resident = [&] {
    std::vector<unsigned char> states(pages);
    REQUIRE(::mincore(arena->memory().data(), kMiB, states.data()) == 0);
    return std::ranges::count_if(states, [](unsigned char state) { return state & 1; });
  };
  CHECK(resident() == static_cast<std::ptrdiff_t>(pages));
  const auto apart = arena->allocate(kMiB / 2).value();
  CHECK(resident() == static_cast<std::ptrdiff_t>(pinned ? pages : pages / 2));
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
    CHECK(arena->allocate_together(arena->memory().size()).ok());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the smallest free range that fits is taken, so that large ones stay whole",
          "[unit][base]") {
  const auto arena = make_arena(kMiB);
  const std::size_t page = Arena::taken_bytes(1);
  auto large = arena->allocate(4 * page).value();
  const auto wall = arena->allocate(page).value();
  auto small = arena->allocate(2 * page).value();
  const auto rest = arena->allocate(arena->memory().size() - 7 * page).value();
  const std::size_t small_offset = offset_in(*arena, *small);
  large.reset();
  small.reset();
  const auto fits = arena->allocate(page + 1).value();
  CHECK(offset_in(*arena, *fits) == small_offset);
  CHECK(arena->allocate_together(4 * page).ok());
}

TEST_CASE("a buffer fits exactly if its pages are free, and wastes less than a page",
          "[unit][base]") {
  const unsigned seed = GENERATE(1u, 2u, 3u);
  const bool pinned = GENERATE(false, true);
  CAPTURE(seed, pinned);
  std::mt19937 random(seed);
  const auto arena = make_arena(kMiB);
  if (pinned) arena->pin();
  const std::size_t page = Arena::taken_bytes(1), pages = kMiB / page;
  struct Live {
    std::unique_ptr<Arena::Buffer> buffer;
    std::byte value;
  };
  std::vector<Live> live;
  std::size_t refused = 0, apart = 0;
  for (int step = 0; step < 3000; ++step) {
    std::size_t taken = 0, sizes = 0;
    for (const Live& each : live) {
      sizes += each.buffer->bytes().size();
      taken += std::max((each.buffer->bytes().size() + page - 1) / page, std::size_t{1});
    }
    REQUIRE(arena->used_bytes() == taken * page);
    REQUIRE(arena->used_bytes() - sizes <= live.size() * page);
    if (!live.empty() && random() % 3 == 0) {
      std::swap(live[random() % live.size()], live.back());
      REQUIRE(filled_with(live.back().buffer->bytes(), live.back().value));
      live.pop_back();
      continue;
    }
    if (!live.empty() && random() % 4 == 0) {
      const Live& less = live[random() % live.size()];
      less.buffer->shrink(less.buffer->bytes().size() / 2);
      REQUIRE(filled_with(less.buffer->bytes(), less.value));
      continue;
    }
    const std::size_t size = random() % (20 * page);
    const auto end = random() % 2 == 0 ? Arena::End::kLow : Arena::End::kHigh;
    const bool fits = std::max((size + page - 1) / page, std::size_t{1}) <= pages - taken;
    auto buffer = arena->allocate(size, end);
    REQUIRE(buffer.ok() == fits);
    if (!fits) {
      REQUIRE(buffer.status().code() == StatusCode::kOutOfSpace);
      ++refused;
      continue;
    }
    const std::byte* const begin = (*buffer)->bytes().data();
    const MutableBytes whole = arena->memory();
    if (begin < whole.data() || begin >= whole.data() + whole.size()) ++apart;
    const auto value = static_cast<std::byte>(step);
    std::ranges::fill((*buffer)->bytes(), value);
    live.push_back({std::move(buffer).value(), value});
  }
  CHECK(refused > 0);
  CHECK(apart > 0);
  for (const Live& each : live) REQUIRE(filled_with(each.buffer->bytes(), each.value));
  live.clear();
  CHECK(arena->used_bytes() == 0);
  CHECK(arena->allocate_together(arena->memory().size()).ok());
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
        const auto buffer = arena->allocate(1 + random() % 100'000);
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
