// Waiting requests are served in turn, owner by owner; puts are admitted by the bytes that they
// will stage.
#include "cachesvc/pipeline/fair_wait_queue.h"
#include "cachesvc/base/asio_loop.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "cachesvc/pipeline/put_room.h"

namespace precis {
namespace {

const int kOwners[3] = {};

struct Line {
  AsioLoop loop;
  FairWaitQueue line{loop, std::chrono::hours(1)};
  int left = 0;  // the amount that is available
  std::string served, in_vain;

  void wait(int owner, char name, int amount = 1) {
    line.add(
        Owner{owner == 2 ? "other" : "tenant", 1, &kOwners[owner]},
        [this, name, amount]() -> std::function<void()> {
          if (amount > left) return nullptr;
          left -= amount;
          return [this, name] { served += name; };
        },
        [this, name] { in_vain += name; });
  }
};

}  // namespace

TEST_CASE("a line is served tenant by tenant, then connection by connection, each in order",
          "[unit][pipeline]") {
  Line l;
  for (const char name : {'a', 'b', 'c', 'd'}) l.wait(0, name);
  l.wait(1, 'x');
  l.wait(2, 'y');
  l.wait(1, 'z');
  l.left = 4;
  l.line.serve();
  CHECK(l.served == "ayxb");
  l.left = 3;
  l.line.serve();
  CHECK(l.served == "ayxbzcd");
  CHECK(l.line.size() == 0);
}

TEST_CASE("nobody in a line overtakes the one whose turn it is", "[unit][pipeline]") {
  Line l;
  l.wait(0, 'L', 5);
  l.wait(1, 's', 1);
  l.left = 4;
  l.line.serve();
  CHECK(l.served.empty());
  l.left = 6;
  l.line.serve();
  CHECK(l.served == "Ls");
}

TEST_CASE("a line that is stopped is waited in in vain", "[unit][pipeline]") {
  Line l;
  l.wait(0, 'a');
  l.wait(1, 'b');
  l.line.stop();
  CHECK(l.in_vain == "ab");
  CHECK(l.line.size() == 0);
}

namespace {

struct Room {
  explicit Room(std::chrono::milliseconds wait)
      : room(loop, 100, wait,
             [this](const std::string& of, std::optional<std::size_t> rest) { rests[of] = rest; }) {
  }
  using Answer = Result<std::unique_ptr<PutRoom::Place>>;
  Task<void> enter(std::size_t bytes, std::optional<Answer>& answer, bool then_stop = false) {
    answer.emplace(co_await room.enter(bytes, Owner{tenant, 1, this}));
    if (then_stop) loop.stop();
  }
  std::string tenant;
  std::map<std::string, std::optional<std::size_t>> rests;  // by tenant, as last told
  AsioLoop loop;
  PutRoom room;
};

}  // namespace

TEST_CASE("a put is let in once all that it will stage fits, or where it is alone",
          "[unit][pipeline]") {
  Room r(std::chrono::hours(1));
  std::optional<Room::Answer> large, small, nothing;
  spawn(r.enter(150, large));  // more than the room, but alone
  REQUIRE(large);
  REQUIRE(large->ok());
  spawn(r.enter(0, nothing));  // a put of a stored segment
  CHECK(nothing);
  spawn(r.enter(1, small, /*then_stop=*/true));
  CHECK_FALSE(small);
  CHECK(r.room.waiting() == 1);
  large.reset();
  r.loop.run();
  REQUIRE(small);
  CHECK(small->ok());
}

TEST_CASE("a put that finds no room is rejected, and told when to come back", "[unit][pipeline]") {
  Room r(std::chrono::milliseconds(1));
  std::optional<Room::Answer> first, second;
  spawn(r.enter(60, first));
  spawn(r.enter(60, second, /*then_stop=*/true));
  r.loop.run();
  REQUIRE(second);
  CHECK(second->status().code() == StatusCode::kRejected);
  CHECK(second->status().retry_after_ms() > 0);
  CHECK_THAT(second->status().message(), Catch::Contains("memory_bytes"));
}

TEST_CASE("a tenant's puts stage no more than its limit, and hold up no others",
          "[unit][pipeline]") {
  Room r(std::chrono::hours(1));
  r.room.set_limits({{"small", 50}});
  r.tenant = "small";
  std::optional<Room::Answer> first, second, large, nothing, other;
  spawn(r.enter(30, first));
  REQUIRE(first);
  REQUIRE(first->ok());
  CHECK(r.room.taken_by("small") == 30);
  CHECK(r.rests["small"] == 20);  // for its layers in the hot tier
  spawn(r.enter(30, second));
  REQUIRE(second);  // at once
  CHECK(second->status().code() == StatusCode::kRejected);
  CHECK(second->status().retry_after_ms() > 0);
  CHECK_THAT(second->status().message(),
             Catch::Contains("tenant 'small' take 30 of its 50 B (max_memory_bytes)"));
  spawn(r.enter(51, large));
  CHECK(large->status().code() == StatusCode::kOutOfSpace);
  spawn(r.enter(0, nothing));
  CHECK(nothing->ok());
  r.tenant = "other";
  spawn(r.enter(70, other));
  CHECK(other->ok());
  first.reset();
  nothing.reset();
  CHECK(r.room.taken_by("small") == 0);
  CHECK(r.room.taken_bytes() == 70);
  CHECK(r.rests["small"] == 50);
  r.tenant = "small";
  spawn(r.enter(40, nothing));  // it waits, and holds nothing
  CHECK(r.room.waiting() == 1);
  CHECK(r.room.taken_by("small") == 40);
  CHECK(r.rests["small"] == 50);
  other->value()->shrink(10);  // a put that has only its digests left
  CHECK(r.room.taken_by("other") == 10);
  CHECK(r.room.taken_bytes() == 10);
  CHECK_FALSE(r.rests.contains("other"));
  r.room.set_limits({{"other", 60}});
  CHECK(r.rests["small"] == std::nullopt);
  CHECK(r.rests["other"] == 50);
}

}  // namespace precis
