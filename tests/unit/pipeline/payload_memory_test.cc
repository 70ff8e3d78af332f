// Memory is taken, made free by eviction, waited for, and refused after a timeout.
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/base/asio_loop.h"

#include <catch2/catch.hpp>
#include <optional>

namespace precis {
namespace {

constexpr std::size_t kArenaBytes = 1u << 20;
constexpr std::size_t kHalf = kArenaBytes / 2;

struct Fixture {
  explicit Fixture(std::chrono::milliseconds wait)
      : arena(std::move(Arena::create(kArenaBytes)).value()),
        hot_tier(kArenaBytes, make_s3_fifo_policy),
        memory(*arena, hot_tier, loop, wait) {}

  using Answer = Result<PayloadMemory::Pieces>;
  Task<void> acquire(std::size_t size, std::optional<Answer>& answer) {
    const std::vector<PayloadMemory::Want> wants(1, PayloadMemory::Want{size});
    answer.emplace(co_await memory.acquire(wants));
    if (stop_when_answered) loop.stop();
  }

  // Lets waiting requests try again and delivers their answers.
  void retry() {
    memory.retry();
    for (int turns = 0; turns < 2; ++turns) {
      loop.post([this] { loop.stop(); });
      loop.run();
    }
  }

  AsioLoop loop;
  std::unique_ptr<Arena> arena;
  HotTier hot_tier;
  PayloadMemory memory;
  bool stop_when_answered = false;
};

}  // namespace

TEST_CASE("the hot tier makes room for what is asked", "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    f.hot_tier.insert("", SegmentId{}, layer, nullptr,
                      std::move(f.arena->allocate(kArenaBytes / 4)).value());
  }
  std::optional<Fixture::Answer> answer;
  spawn(f.acquire(kHalf, answer));
  REQUIRE(answer);
  CHECK(answer->ok());
  CHECK(f.hot_tier.stats().entries == 2);
}

TEST_CASE("who comes while memory is short is served in turn when some comes free",
          "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  auto taken = f.arena->allocate(kArenaBytes - 4096);
  REQUIRE(taken.ok());
  std::optional<Fixture::Answer> large, small;
  spawn(f.acquire(kHalf, large));
  spawn(f.acquire(64, small));  // would fit, but may not overtake
  CHECK_FALSE(large);
  CHECK_FALSE(small);
  std::move(taken).value().reset();
  f.retry();
  REQUIRE(large);
  REQUIRE(small);
  CHECK(large->ok());
  CHECK(small->ok());
}

TEST_CASE("who wants no memory any more leaves the line, and lets the next one in",
          "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  auto taken = f.arena->allocate(kArenaBytes - 4096);
  REQUIRE(taken.ok());
  std::optional<Fixture::Answer> unwanted, small;
  bool wanted = true;
  const auto waits = [&]() -> Task<void> {
    const PayloadMemory::Wants wants = [] {
      return std::vector<PayloadMemory::Want>(1, PayloadMemory::Want{kHalf});
    };
    unwanted.emplace(co_await f.memory.acquire(wants, {}, [&] { return !wanted; }));
  };
  spawn(waits());
  spawn(f.acquire(64, small));
  f.memory.drop_unwanted();
  CHECK_FALSE(unwanted);
  wanted = false;
  f.memory.drop_unwanted();
  REQUIRE(unwanted);
  CHECK(unwanted->status().code() == StatusCode::kCanceled);
  REQUIRE(small);
  CHECK(small->ok());
  CHECK(f.memory.waiting() == 0);
}

TEST_CASE("what is waited for is asked for as it is wanted when it comes free",
          "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  auto taken = f.arena->allocate(kArenaBytes);
  REQUIRE(taken.ok());
  std::vector<PayloadMemory::Want> wants{{64}};
  std::optional<Fixture::Answer> answer;
  const auto waits = [&]() -> Task<void> {
    answer.emplace(co_await f.memory.acquire([&] { return wants; }, {}));
  };
  spawn(waits());
  wants.push_back({128});
  std::move(taken).value().reset();
  f.retry();
  REQUIRE(answer);
  REQUIRE(answer->ok());
  CHECK((*answer)->size() == 2);
}

TEST_CASE("pages that lie apart are given once nothing more can be evicted", "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  std::vector<std::unique_ptr<Arena::Buffer>> quarters;
  for (int i = 0; i < 4; ++i) quarters.push_back(f.arena->allocate(kArenaBytes / 4).value());
  f.hot_tier.insert("", SegmentId{}, 0, nullptr, std::move(quarters[1]));
  std::optional<Fixture::Answer> half, other;
  SECTION("they come free") {
    spawn(f.acquire(kHalf, half));
    f.retry();
    CHECK_FALSE(half);
    CHECK(f.hot_tier.stats().entries == 0);
    quarters[3].reset();
    f.retry();
    REQUIRE(half);
    CHECK(half->ok());
  }
  SECTION("an eviction gives as many that lie together") {
    quarters[3].reset();
    quarters[2].reset();
    quarters[3] = f.arena->allocate(kArenaBytes / 4, Arena::End::kHigh).value();
    quarters[2] = f.arena->allocate(kArenaBytes / 8).value();
    spawn(f.acquire(kArenaBytes / 4 + 64, half));
    REQUIRE(half);
    REQUIRE(half->ok());
    CHECK(f.hot_tier.stats().entries == 0);
  }
  SECTION("only free ranges are given to those who evict nothing") {
    quarters[3].reset();
    CHECK(f.memory.try_free({{kHalf}}).status().code() == StatusCode::kOutOfSpace);
    CHECK(f.memory.try_free({{kArenaBytes / 4}}).ok());
    CHECK(f.hot_tier.stats().entries == 1);
  }
}

TEST_CASE("who waits too long is told what is in use", "[unit][pipeline]") {
  Fixture f(std::chrono::milliseconds(1));
  auto taken = f.arena->allocate(kArenaBytes);
  REQUIRE(taken.ok());
  f.stop_when_answered = true;
  std::optional<Fixture::Answer> answer;
  spawn(f.acquire(kHalf, answer));
  f.loop.run();
  REQUIRE(answer);
  CHECK(answer->status().code() == StatusCode::kRejected);
  CHECK(answer->status().retry_after_ms() > 0);
  CHECK_THAT(answer->status().message(),
             Catch::Contains("524288 B") && Catch::Contains("memory_bytes"));
}

TEST_CASE("what can never fit is refused at once", "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  std::optional<Fixture::Answer> answer;
  spawn(f.acquire(kArenaBytes + 1, answer));
  REQUIRE(answer);
  CHECK(answer->status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("what can never fit beside what was taken for good is refused, and evicts nothing",
          "[unit][pipeline]") {
  AsioLoop loop;
  const auto arena = std::move(Arena::create(kArenaBytes)).value();
  const auto for_good = std::move(arena->allocate(64)).value();
  HotTier hot_tier(kArenaBytes, make_s3_fifo_policy);
  PayloadMemory memory(*arena, hot_tier, loop, std::chrono::hours(1));
  hot_tier.insert("", SegmentId{}, 0, nullptr, std::move(arena->allocate(64)).value());
  const auto refused = [&](std::vector<PayloadMemory::Want> wants) {
    std::optional<Fixture::Answer> answer;
    const auto acquire = [&]() -> Task<void> { answer.emplace(co_await memory.acquire(wants)); };
    spawn(acquire());
    return answer && answer->status().code() == StatusCode::kInvalidArgument;
  };
  CHECK(refused({{kArenaBytes}}));
  CHECK(refused({{kHalf}, {kHalf}}));
  CHECK(hot_tier.stats().entries == 1);
}

TEST_CASE("of several pieces all are taken or none", "[unit][pipeline]") {
  Fixture f(std::chrono::hours(1));
  const auto taken = f.arena->allocate(64);
  std::optional<Fixture::Answer> answer;
  const auto acquire = [&]() -> Task<void> {
    const std::vector<PayloadMemory::Want> wants{{kHalf, Arena::End::kHigh}, {kHalf}};
    answer.emplace(co_await f.memory.acquire(wants));
  };
  spawn(acquire());
  CHECK_FALSE(answer);
  CHECK(f.arena->used_bytes() == Arena::taken_bytes(64));
  f.memory.stop();
  REQUIRE(answer);
  CHECK(answer->status().code() == StatusCode::kUnavailable);
}

}  // namespace precis
