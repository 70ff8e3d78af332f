// The total of a session: the service trims old turns while the conversation goes on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261127, kTurnTokens = 256;

class TotalFixture : protected StoredFixture {
 protected:
  TotalFixture() : StoredFixture(kSeed) {}

  struct Talk {
    std::string session;
    std::vector<TokenId> path;
    SegmentId newest{};
    std::string recipe = "ada_keydiff";
    Budget keep = Budget::ratio(0.5).value();
  };
  struct Sizes {
    std::uint64_t stored = 0, full = 0;
    bool operator==(const Sizes&) const = default;
  };
  Talk begin(const std::string& session, std::optional<Budget> total) {
    REQUIRE(client->open_session(session, {}, total).ok());
    return {session, {}};
  }
  // Stores a turn.
  void say(Talk& talk) {
    const auto begin = static_cast<std::uint32_t>(talk.path.size());
    for (const TokenId token : random_tokens(random, kTurnTokens)) talk.path.push_back(token);
    PutOptions how;
    how.recipe = talk.recipe;
    how.keep = talk.keep;
    talk.newest = put(talk.path, random_kv(random, model.spec, begin, kTurnTokens), how).id;
    REQUIRE(client->advance_session(talk.session, talk.newest).ok());
  }
  // The segments from the root on. A segment may be consolidated while its path is read.
  std::vector<msg::SegmentInfo> turns(const Talk& talk) {
    for (;;) {
      std::vector<msg::SegmentInfo> chain;
      for (SegmentId id = talk.newest; !id.is_null(); id = chain.back().parent) {
        const auto info = client->segment(id);
        if (!info.ok()) break;
        chain.push_back(*info);
      }
      std::ranges::reverse(chain);
      std::uint32_t end = 0;
      for (const msg::SegmentInfo& each : chain) end = each.begin == end ? each.end : 0;
      if (end == talk.path.size()) return chain;
    }
  }
  Sizes sizes(const Talk& talk) {
    Sizes sum;
    for (const msg::SegmentInfo& turn : turns(talk)) {
      sum.stored += turn.stored_bytes;
      sum.full += turn.original_bytes;
    }
    return sum;
  }
  template <typename Condition>
  static void wait_until(const Condition& holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The part of its full KV's entries that a turn keeps.
  double share(const msg::SegmentInfo& turn) const {
    return static_cast<double>(turn.entries) /
           ((turn.end - turn.begin) * model.spec.num_layers * model.spec.num_kv_heads);
  }
  double trims() { return stat(*client, "precis_trims_total"); }
};

TEST_CASE_METHOD(TotalFixture,
                 "a session's turns take no more than its total, at a few trims a turn",
                 "[integration]") {
  constexpr std::uint64_t kTurnFull = 2ull * kTurnTokens * 4 * 2 * 32 * 4;  // K and V in f32
  const bool is_share = GENERATE(true, false);
  const Budget total = is_share ? Budget::ratio(0.3).value() : Budget::bytes(8 * kTurnFull);
  CAPTURE(total.to_string());
  Talk talk = begin("talk", total);
  std::vector<double> by_turn;  // trims after each turn, since the last restart
  for (std::uint32_t turn = 1; turn <= 60; ++turn) {
    say(talk);
    wait_until([&] {
      const Sizes sum = sizes(talk);
      if (!is_share) return sum.stored <= total.value;
      // If the total is a share, the others are not trimmed to make room for the newest turn.
      return sum.stored - turns(talk).back().stored_bytes <= sum.full * 3 / 10;
    });
    by_turn.push_back(trims());
    if (turn == 30) {
      service->kill();
      restart();
    }
  }
  CHECK(client->session("talk").value().total == total);
  const auto between = [&](std::size_t from, std::size_t to) {
    return by_turn[to] - by_turn[from];
  };
  // The last turns cause no more trims than those at the beginning.
  const double a_turn = is_share ? 2 : 8;
  CHECK(between(10, 28) <= 18 * a_turn);
  CHECK(between(31, 59) <= 28 * a_turn);
  auto chain = turns(talk);
  wait_until([&] {  // until the last trim is done
    chain = turns(talk);
    return chain[chain.size() - 2].trimmed.has_value();
  });
  CHECK_FALSE(chain.back().trimmed);
  REQUIRE(chain.front().trimmed);
  CHECK(share(chain.front()) < share(chain.back()));
  // All checksums are right. A segment that is consolidated while it is read is read again.
  wait_until([&] {
    const auto copy = read_all(*client, model, talk.path, Budget::all());
    return copy.ok() && by_position(*copy).size() == model.spec.num_layers;
  });
}

TEST_CASE_METHOD(TotalFixture,
                 "each turn is trimmed when it gets old, although others were trimmed to less",
                 "[integration]") {
  Talk talk = begin("talk", Budget::ratio(0.3).value());
  std::size_t segments = 0;
  for (int turn = 0; turn < 30; ++turn) {
    say(talk);
    wait_until([&] {
      const auto chain = turns(talk);
      segments = chain.size();
      return segments == 1 || chain[segments - 2].trimmed.has_value();
    });
    if (turn != 4) continue;
    for (const msg::SegmentInfo& old : turns(talk)) {
      if (old.id == talk.newest) continue;
      REQUIRE(client->trim_segment(old.id, Budget::ratio(0.1).value()).ok());
    }
  }
  CHECK(segments < 20);  // consolidated
}

TEST_CASE_METHOD(TotalFixture, "a share does not count the turn of which a recipe keeps the most",
                 "[integration]") {
  Talk talk = begin("talk", Budget::ratio(0.2).value());
  talk.keep = GENERATE(Budget::ratio_ppm(500'000), Budget::all());
  talk.recipe = "ada_keydiff(min_entries=256)";
  for (int turn = 0; turn < 12; ++turn) say(talk);
  const auto old_share = [&] {  // of all but the first and the newest
    const auto chain = turns(talk);
    double entries = 0, full = 0;
    for (std::size_t i = 1; i + 1 < chain.size(); ++i) {
      entries += share(chain[i]) * (chain[i].end - chain[i].begin);
      full += chain[i].end - chain[i].begin;
    }
    return entries / full;
  };
  wait_until([&] { return old_share() <= 0.2; });
  CHECK(old_share() > 0.12);  // with the first turn counted, it would be a twentieth
  CHECK(share(turns(talk).front()) > 0.9);
  CHECK_FALSE(turns(talk).front().trimmed);
}

TEST_CASE_METHOD(TotalFixture, "turns that are pinned or that other paths continue are left",
                 "[integration]") {
  const Budget tenth = Budget::ratio(0.1).value();
  Talk pinned = begin("pinned", {});
  say(pinned);
  Talk other = pinned;
  other.session = "other";
  REQUIRE(client->open_session("other", {}, tenth).ok());
  for (int turn = 0; turn < 3; ++turn) say(pinned);
  const Sizes before = sizes(pinned);
  REQUIRE(client->pin_session("pinned", true).ok());
  REQUIRE(client->open_session("pinned", {}, tenth).ok());
  for (int turn = 0; turn < 3; ++turn) say(other);
  // Sessions take turns in the order of their changes, so the first one has had its turn.
  wait_until([&] { return share(turns(other)[2]) <= 0.1; });
  CHECK(sizes(pinned) == before);
  CHECK_FALSE(turns(other)[0].trimmed);

  REQUIRE(client->fork_session("pinned", "fork").value().total == tenth);
  REQUIRE(client->pin_session("pinned", false).ok());
  REQUIRE(client->advance_session("pinned", pinned.newest).ok());
  wait_until([&] { return share(turns(pinned)[2]) <= 0.1; });
  CHECK_FALSE(turns(pinned)[0].trimmed);
  CHECK(sizes(pinned).stored < before.stored);
}

}  // namespace
