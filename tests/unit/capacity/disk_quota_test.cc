// Puts are admitted by the bytes that they will store, under the limits of their tenant and of all.
#include "cachesvc/pipeline/disk_quota.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>

#include "cachesvc/base/asio_loop.h"

namespace precis {
namespace {

struct Quota {
  using Answer = Result<std::unique_ptr<DiskQuota::Place>>;
  explicit Quota(DiskQuota::Limits limits, std::chrono::milliseconds wait = std::chrono::hours(1))
      : quota(
            loop, [this](const std::string& tenant) { return stored[tenant]; }, std::move(limits),
            wait) {}
  Task<void> enter(std::string tenant, std::uint64_t bytes, std::optional<Answer>& answer,
                   bool then_stop = false) {
    answer.emplace(co_await quota.enter(std::move(tenant), bytes));
    if (then_stop) loop.stop();
  }
  AsioLoop loop;
  std::map<std::string, std::uint64_t> stored;
  DiskQuota quota;
};

}  // namespace

TEST_CASE("puts enter while they fit beside what is stored and promised", "[unit][capacity]") {
  Quota q({100, {{"a", 50}}});
  q.stored = {{"a", 10}, {"", 60}};
  std::optional<Quota::Answer> first, second, third;
  spawn(q.enter("a", 40, first));
  REQUIRE((first && first->ok()));
  spawn(q.enter("a", 1, second, /*then_stop=*/true));  // its tenant's limit
  CHECK_FALSE(second);
  spawn(q.enter("b", 1, third));  // the limit of all: 60 stored, 40 promised
  CHECK_FALSE(third);
  CHECK(q.quota.waiting() == 2);

  const auto scopes = q.quota.scopes();
  REQUIRE(scopes.size() == 2);
  CHECK(scopes[0].tenant == "a");
  CHECK(scopes[0].stored + scopes[0].promised == 50);
  CHECK(scopes[0].missing == 1);
  CHECK(scopes[1].stored + scopes[1].promised == 100);
  CHECK(scopes[1].wanted == 1);

  first.reset();  // the put failed: what was promised to it is free
  q.loop.run();
  CHECK((second && second->ok()));
  CHECK((third && third->ok()));
}

TEST_CASE("a tenant that waits does not hold up another", "[unit][capacity]") {
  Quota q({0, {{"a", 50}}});
  q.stored = {{"a", 50}};
  std::optional<Quota::Answer> waits, enters;
  spawn(q.enter("a", 10, waits));
  spawn(q.enter("b", 1000, enters));
  CHECK_FALSE(waits);
  CHECK((enters && enters->ok()));
  q.stored["a"] = 40;
  q.quota.retry();
  CHECK((waits && waits->ok()));
}

TEST_CASE("space goes to the put that has waited longest", "[unit][capacity]") {
  Quota q({100, {}});
  q.stored[""] = 60;
  std::optional<Quota::Answer> large, small;
  spawn(q.enter("a", 50, large));
  spawn(q.enter("b", 10, small));  // it would fit, but does not overtake
  CHECK_FALSE(large);
  CHECK_FALSE(small);
  q.stored[""] = 50;
  q.quota.retry();
  CHECK((large && large->ok()));
  CHECK_FALSE(small);
  q.quota.set_limits({9, {}});
  REQUIRE(small);
  CHECK(small->status().code() == StatusCode::kOutOfSpace);
}

TEST_CASE("a put that can never fit is refused at once, one that waits in vain later",
          "[unit][capacity]") {
  Quota q({100, {}}, std::chrono::milliseconds(1));
  q.stored[""] = 100;
  std::optional<Quota::Answer> large, late, refused;
  spawn(q.enter("a", 101, large));
  REQUIRE(large);
  CHECK(large->status().code() == StatusCode::kOutOfSpace);
  CHECK_THAT(large->status().message(), Catch::Contains("raise max_disk_bytes"));

  spawn(q.enter("a", 10, late, /*then_stop=*/true));
  q.loop.run();
  REQUIRE(late);
  CHECK(late->status().code() == StatusCode::kRejected);
  CHECK(late->status().retry_after_ms() > 0);

  q.quota.set_wait(std::chrono::hours(1));
  spawn(q.enter("a", 10, refused));
  std::optional<Quota::Answer> behind;
  spawn(q.enter("a", 1, behind));
  q.quota.refuse_first("other");
  CHECK_FALSE(refused);
  q.quota.refuse_first("");
  CHECK_FALSE(behind);  // it may fit
  REQUIRE(refused);
  CHECK(refused->status().code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused->status().message(), Catch::Contains("unpin"));
}

TEST_CASE("space that clients freed without a word goes to a put at the end of its wait",
          "[unit][capacity]") {
  Quota q({100, {}}, std::chrono::milliseconds(1));
  q.stored[""] = 100;
  std::optional<Quota::Answer> late;
  spawn(q.enter("a", 10, late, /*then_stop=*/true));
  CHECK_FALSE(late);
  q.stored[""] = 50;
  q.loop.run();
  CHECK((late && late->ok()));
}

TEST_CASE("what is stored is read once for all numbers of a scope", "[unit][capacity]") {
  AsioLoop loop;
  bool changes = false;
  std::uint64_t reads = 0;
  const auto stored = [&](const std::string&) -> std::uint64_t {
    if (!changes) return 100;
    return ++reads % 2 == 0 ? 100 : 0;  // a segment is put and removed again and again
  };
  DiskQuota quota(loop, stored, {100, {}}, std::chrono::hours(1));
  std::optional<Quota::Answer> answer;
  const auto enter = [&]() -> Task<void> { answer.emplace(co_await quota.enter("a", 10)); };
  spawn(enter());
  CHECK_FALSE(answer);
  changes = true;
  for (const std::uint64_t missing : {0u, 10u}) {
    const auto scopes = quota.scopes();
    REQUIRE(scopes.size() == 1);
    CHECK(scopes[0].missing == missing);
  }
  CHECK(reads == 2);
  quota.stop();
}

TEST_CASE("new limits hold at once, and a stop ends all waits", "[unit][capacity]") {
  Quota q({100, {}});
  q.stored[""] = 100;
  int told = 0;
  q.quota.on_change([&] { ++told; });
  std::optional<Quota::Answer> first, second;
  spawn(q.enter("a", 10, first));
  CHECK(told == 1);
  q.quota.set_limits({110, {}});
  CHECK((first && first->ok()));
  CHECK(told == 2);
  spawn(q.enter("a", 10, second));
  q.quota.stop();
  REQUIRE(second);
  CHECK(second->status().code() == StatusCode::kUnavailable);
  CHECK(q.quota.waiting() == 0);
}

TEST_CASE("the node's disk is a limit of its own, which waits for the uploads",
          "[unit][capacity]") {
  Quota q({0, {{"a", 50}}}, std::chrono::milliseconds(1));
  std::uint64_t on_disk = 80;
  q.quota.measure_disk([&] { return on_disk; });
  std::optional<Quota::Answer> first, small, large, late;
  spawn(q.enter("b", 1000, first));
  CHECK((first && first->ok()));  // no limit yet
  first.reset();
  q.quota.limit_disk(100);
  spawn(q.enter("b", 101, large));
  REQUIRE(large);
  CHECK(large->status().code() == StatusCode::kOutOfSpace);
  CHECK_THAT(large->status().message(), Catch::Contains("warm_disk_bytes"));
  spawn(q.enter("b", 20, first));
  CHECK((first && first->ok()));
  spawn(q.enter("a", 10, small));
  CHECK_FALSE(small);
  CHECK(q.quota.scopes().size() == 1);  // nothing is trimmed or dropped for the disk
  CHECK(q.quota.disk().missing == 10);
  on_disk = 70;  // evicted
  q.quota.retry();
  CHECK((small && small->ok()));

  spawn(q.enter("c", 1, late, /*then_stop=*/true));
  CHECK_FALSE(late);
  q.loop.run();
  REQUIRE(late);
  CHECK(late->status().code() == StatusCode::kOutOfSpace);
  CHECK_THAT(late->status().message(), Catch::Contains("uploads to the shared storage are behind"));

  std::optional<Quota::Answer> waits;
  spawn(q.enter("c", 90, waits));
  CHECK_FALSE(waits);
  q.quota.limit_disk(80);
  REQUIRE(waits);
  CHECK(waits->status().code() == StatusCode::kOutOfSpace);
  q.quota.limit_disk(0);
  waits.reset();
  spawn(q.enter("c", 90, waits));
  CHECK((waits && waits->ok()));
}

}  // namespace precis
