// Which turn of a session is trimmed next, and how often a turn is trimmed as a conversation grows.
#include "cachesvc/pipeline/session_total.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <numeric>
#include <vector>

namespace {

using namespace precis;

constexpr std::uint64_t kFull = 1000;  // entries of a turn's full KV, of a byte each

// The scores of a turn's stored entries, from `highest` down to almost 0.
ScoreCurve falling_from(float highest, std::uint64_t entries) {
  std::vector<float> scores(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    scores[i] = highest * static_cast<float>(entries - i) / static_cast<float>(entries);
  }
  return {scores, entries};
}

// Turns that are trimmed as the service trims them.
struct Talk {
  std::deque<ScoreCurve> curves = {};
  std::vector<TotalTurn> turns = {};
  std::size_t trims = 0;
  std::uint64_t rewritten = 0;  // entries

  void say(std::uint64_t entries, float highest = 1, std::uint64_t least = kFull / 20) {
    curves.push_back(falling_from(highest, entries));
    turns.push_back({entries, kFull, entries, least, &curves.back()});
  }
  void settle(const Budget& total) {
    for (int round = 0; round < 4; ++round) {
      for (const TotalTrim& next : trims_for(turns, total)) {
        TotalTurn& turn = turns[next.turn];
        REQUIRE(next.turn + 1 < turns.size());
        REQUIRE(next.entries < turn.entries);
        turn.entries = turn.stored_bytes = next.entries;
        ++trims;
        rewritten += next.entries;
      }
    }
  }
  std::vector<std::uint64_t> kept() const {
    std::vector<std::uint64_t> kept;
    for (const TotalTurn& turn : turns) kept.push_back(turn.entries);
    return kept;
  }
  std::uint64_t bytes() const {
    const auto all = kept();
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  }
};

Budget ratio(double share) { return Budget::ratio(share).value(); }

}  // namespace

TEST_CASE("old turns are cut at one score, so a dull turn keeps less", "[unit][pipeline]") {
  Talk talk;
  talk.say(400, 1);
  talk.say(400, 4);  // its scores are four times as high
  talk.say(400, 1);
  talk.settle(ratio(0.2));
  // A cut of all three turns at the score 0.7 leaves 0.95 of the total, and 120 entries of a turn
  // with low scores.
  CHECK(talk.kept()[0] == Approx(120).margin(2));
  CHECK(talk.kept()[1] == Approx(330).margin(2));
  CHECK(talk.kept()[2] == 400);
}

TEST_CASE("a turn that would lose less than a fifth waits until the total needs it",
          "[unit][pipeline]") {
  Talk talk;
  for (int turn = 0; turn < 10; ++turn) talk.say(240);
  talk.settle(ratio(0.21));  // one score leaves 199 or 200 of each
  const std::vector<std::uint64_t> kept = talk.kept();
  CHECK(kept[0] < 201);
  CHECK(kept[8] == 240);
  // No more is trimmed than the total needs. The newest turn counts as if it were cut.
  const std::uint64_t once_old = talk.bytes() - 240 + 200;
  CHECK(once_old <= 10 * kFull * 21 / 100);
  CHECK(once_old > 10 * kFull * 21 / 100 - 41);
  CHECK(trims_for({}, Budget::bytes(9)).empty());
}

TEST_CASE("a turn is trimmed when it gets old, although the session is within its total",
          "[unit][pipeline]") {
  Talk talk;
  for (const std::uint64_t entries : {400, 400, 50}) talk.say(entries);
  talk.turns[0].entries = talk.turns[0].stored_bytes = 100;  // trimmed before
  talk.settle(ratio(0.2));  // of the 850 entries that were put, one score leaves 570
  CHECK(talk.kept()[0] == 100);
  CHECK(talk.kept()[1] == Approx(260).margin(2));
}

TEST_CASE("the newest turn, held ones and the least of each are left", "[unit][pipeline]") {
  Talk talk;
  for (int turn = 0; turn < 4; ++turn) talk.say(500, 1, turn == 2 ? 450 : kFull / 20);
  talk.turns[0].curve = nullptr;
  talk.settle(ratio(0.1));  // a total that can't be reached
  CHECK(talk.kept() == std::vector<std::uint64_t>{500, 50, 450, 500});
  CHECK(talk.trims == 2);
}

TEST_CASE("a large newest turn takes at most half of what the others will keep",
          "[unit][pipeline]") {
  Talk talk;
  for (int turn = 0; turn < 10; ++turn) talk.say(190);
  talk.say(4000);
  talk.settle(Budget::bytes(4000));  // 3,800 of 5,900 entries will be kept
  for (std::size_t turn = 0; turn < 10; ++turn) CHECK(talk.kept()[turn] >= 190 * 3 / 10);
  CHECK(talk.kept()[10] == 4000);
  talk.say(10);
  talk.settle(Budget::bytes(4000));
  CHECK(talk.bytes() <= 4000);
  for (std::size_t turn = 0; turn < 10; ++turn) CHECK(talk.kept()[turn] >= 190 * 3 / 10);
}

TEST_CASE("a share of all is held with about a trim a turn, however long the conversation",
          "[unit][pipeline]") {
  Talk talk;
  for (std::size_t turn = 1; turn <= 400; ++turn) {
    talk.say(300, turn % 3 == 0 ? 2.0f : 1.0f);
    const std::size_t before = talk.trims;
    talk.settle(ratio(0.2));
    CHECK(talk.trims - before <= 4);
    CHECK(talk.bytes() - 300 <= turn * kFull / 5);  // without the newest turn
  }
  CHECK(talk.trims <= 600);
}

TEST_CASE("turns are not trimmed again and again while scores rise", "[unit][pipeline]") {
  Talk talk;
  float highest = 1;
  std::uint64_t last = 0;  // entries that the last turn rewrote
  for (std::size_t turn = 1; turn <= 120; ++turn, highest *= 1.01f) {
    talk.say(kFull, highest);
    const std::uint64_t before = talk.rewritten;
    talk.settle(ratio(0.2));
    CHECK(talk.bytes() - kFull <= turn * kFull / 5);
    last = talk.rewritten - before;
  }
  CHECK(talk.trims <= 10 * 120);
  CHECK(last <= 3 * kFull);  // however long the conversation is
}

TEST_CASE("bytes are held, and a turn rewrites no more when there are more turns",
          "[unit][pipeline]") {
  Talk talk;
  std::vector<std::uint64_t> rewritten;  // entries, in each 48 turns
  for (std::size_t turn = 1; turn <= 192; ++turn) {
    talk.say(300, turn % 3 == 0 ? 2.0f : 1.0f);
    const std::uint64_t before = talk.rewritten;
    talk.settle(Budget::bytes(10 * kFull));
    CHECK(talk.bytes() <= 10 * kFull);
    if (turn % 48 == 1) rewritten.push_back(0);
    rewritten.back() += talk.rewritten - before;
  }
  CAPTURE(rewritten);
  for (const std::uint64_t each : rewritten) CHECK(each <= 60 * kFull);
}
