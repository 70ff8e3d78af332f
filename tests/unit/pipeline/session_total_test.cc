// Which turn of a session is trimmed next, and how often a turn is trimmed as a conversation grows.
#include "cachesvc/pipeline/session_total.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace {

using namespace precis;

constexpr std::uint64_t kFull = 100'000;  // bytes of a turn's full KV

// Turns that store a share of their full KV, and are trimmed as the service does it.
struct Talk {
  std::vector<double> shares = {};
  std::vector<bool> held = {};
  std::size_t trims = 0;
  double least = 0;  // no trim leaves less

  std::vector<TotalTurn> turns() const {
    std::vector<TotalTurn> turns;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const double share = shares[i];
      turns.push_back({static_cast<std::uint64_t>(std::llround(share * kFull)), kFull,
                       i < held.size() && held[i], [this, share](const Budget& level) {
                         return std::max(least, static_cast<double>(level.value) / 1e6) < share;
                       }});
    }
    return turns;
  }
  void settle(const Budget& total) {
    while (const auto next = next_trim(turns(), total)) {
      shares[next->turn] = std::max(least, static_cast<double>(next->level.value) / 1e6);
      ++trims;
    }
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const TotalTurn& turn : turns()) sum += turn.stored_bytes;
    return sum;
  }
};

Budget ratio(double share) { return Budget::ratio(share).value(); }

}  // namespace

TEST_CASE("the oldest turns are trimmed, to a little less than the share of all",
          "[unit][pipeline]") {
  Talk talk{.shares = {0.3, 0.3, 0.3, 0.3}};
  const auto first = next_trim(talk.turns(), ratio(0.2));
  REQUIRE(first);
  CHECK(first->turn == 0);
  CHECK(first->level == ratio(0.19));
  talk.settle(ratio(0.25));
  // At 0.2375 each, the newest turn is too much, so the oldest gives more.
  CHECK(talk.shares == std::vector<double>{0.19, 0.2375, 0.2375, 0.3});
  CHECK(talk.trims == 4);
  CHECK_FALSE(next_trim(talk.turns(), ratio(0.26)));
  CHECK_FALSE(next_trim({}, Budget::bytes(9)));
}

TEST_CASE("the newest turn and held ones are left; the others give more, to a twentieth",
          "[unit][pipeline]") {
  Talk talk{.shares = {0.5, 0.5, 0.5, 0.5}, .held = {true}};
  talk.settle(ratio(0.3));
  CHECK(talk.shares[0] == 0.5);
  CHECK(talk.shares[3] == 0.5);
  CHECK(talk.bytes() <= 3 * 4 * kFull / 10);
  talk.settle(ratio(0.1));  // can't be held
  CHECK(talk.shares == std::vector<double>{0.5, 0.05, 0.05, 0.5});
  Talk small{.shares = {0.4, 0.4, 0.4}, .least = 0.3};
  small.settle(ratio(0.1));
  CHECK(small.shares == std::vector<double>{0.3, 0.3, 0.4});
}

TEST_CASE("a share of all is held with about a trim a turn, however long the conversation",
          "[unit][pipeline]") {
  Talk talk;
  for (std::size_t turn = 1; turn <= 400; ++turn) {
    talk.shares.push_back(0.3);
    const std::size_t before = talk.trims;
    talk.settle(ratio(0.2));
    CHECK(talk.trims - before <= (turn < 3 ? 4 : 1));  // at first, the newest turn is the most
    if (turn > 1) CHECK(talk.bytes() <= turn * kFull / 5);
  }
  CHECK(talk.trims <= 400);
}

TEST_CASE("bytes are held, and a turn rewrites no more when there are more turns",
          "[unit][pipeline]") {
  const Budget total = Budget::bytes(10 * kFull);
  Talk talk;
  std::vector<double> rewritten;  // turns' full KV, of each 48 turns
  for (std::size_t turn = 1; turn <= 192; ++turn) {
    talk.shares.push_back(0.3);
    const std::vector<double> before = talk.shares;
    talk.settle(total);
    CHECK(talk.bytes() <= 10 * kFull);
    if (turn % 48 == 1) rewritten.push_back(0);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (talk.shares[i] != before[i]) rewritten.back() += talk.shares[i];
    }
  }
  for (const double each : rewritten) CHECK(each <= 48);
  // From 0.3 down to a twentieth are nine steps.
  CHECK(talk.trims <= 9 * 192);
  CHECK(*std::ranges::min_element(talk.shares) == 0.05);
}
