// Every request for a commit gets the outcome of the put, whenever and however often it is made.
#include "cachesvc/pipeline/joint_put.h"
#include "cachesvc/base/asio_loop.h"

#include <catch2/catch.hpp>
#include <deque>
#include <optional>

namespace precis {
namespace {

using Outcome = JointPut::Outcome;
using Answers = std::deque<std::optional<Outcome>>;

// Commits wait until let_through is called.
struct Fixture {
  explicit Fixture(std::uint32_t writers) : put(loop, writers) {}

  Task<Outcome> carry_out(Durability durability) {
    ++commits;
    strongest = durability;
    co_return co_await completion<Outcome>([&](auto done) { let_through = std::move(done); });
  }
  // The answer arrives while the loop runs.
  std::optional<Outcome>& ask(const char* writer, Durability durability = Durability::kWal) {
    std::optional<Outcome>& answer = answers.emplace_back();
    spawn(agree(writer, durability, answer));
    return answer;
  }
  Task<void> agree(const char* writer, Durability durability, std::optional<Outcome>& answer) {
    answer.emplace(co_await put.agree(writer, durability,
                                      [this](Durability asked) { return carry_out(asked); }));
  }
  void turn() {
    loop.post([this] { loop.stop(); });
    loop.run();
  }

  AsioLoop loop;
  JointPut put;
  Answers answers;
  std::function<void(Outcome)> let_through;
  int commits = 0;
  Durability strongest{};
};

constexpr char kA[] = "a", kB[] = "b";

msg::SegmentInfo stored() {
  msg::SegmentInfo info;
  info.begin = 7;
  return info;
}
bool is_stored(const std::optional<Outcome>& answer) {
  return answer && answer->ok() && (*answer)->begin == 7;
}

}  // namespace

TEST_CASE("who asks again while the put is committed waits for the same", "[unit][pipeline]") {
  Fixture f(1);
  const auto& first = f.ask(kA);
  const auto& again = f.ask(kA);
  f.turn();
  CHECK_FALSE(first);
  CHECK_FALSE(again);
  f.let_through(stored());
  f.turn();
  CHECK(is_stored(first));
  CHECK(is_stored(again));
  CHECK(is_stored(f.ask(kA)));  // a later request is answered at once
  CHECK(f.commits == 1);
}

TEST_CASE("a writer counts once however often it asks, and the strongest wish holds",
          "[unit][pipeline]") {
  Fixture f(2);
  const auto& first = f.ask(kA);
  const auto& again = f.ask(kA, Durability::kFsync);
  CHECK(f.commits == 0);
  const auto& other = f.ask(kB);
  CHECK(f.commits == 1);
  CHECK(f.strongest == Durability::kFsync);
  f.let_through(stored());
  f.turn();
  for (const auto* answer : {&first, &again, &other}) CHECK(is_stored(*answer));
}

TEST_CASE("after a commit that failed all ask anew, also who does before it has heard of it",
          "[unit][pipeline]") {
  Fixture f(2);
  const auto& first = f.ask(kA);
  const auto& other = f.ask(kB);
  f.let_through(Status::out_of_space("full"));
  const auto& early = f.ask(kA);  // before the first answers are delivered
  f.turn();
  CHECK(first->status().code() == StatusCode::kOutOfSpace);
  CHECK(other->status().code() == StatusCode::kOutOfSpace);
  CHECK_FALSE(early);
  const auto& anew = f.ask(kB);
  CHECK(f.commits == 2);
  f.let_through(stored());
  f.turn();
  CHECK(is_stored(early));
  CHECK(is_stored(anew));
}

TEST_CASE("who waits for others is told when one gives the put up", "[unit][pipeline]") {
  Fixture f(2);
  const auto& first = f.ask(kA);
  f.put.give_up(Status::unavailable("b left"));
  f.turn();
  CHECK(first->status().code() == StatusCode::kUnavailable);
  CHECK(f.commits == 0);
}

}  // namespace precis
