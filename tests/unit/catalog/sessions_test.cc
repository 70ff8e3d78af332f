#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cachesvc/catalog/sessions.h"
#include "precis/limits.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {}  // namespace

TEST_CASE("a session is made when first opened and found afterwards", "[unit][catalog]") {
  CatalogFixture f;
  const auto made = f.catalog->open_session(f.tenant, {"chat", {}});
  REQUIRE(made.ok());
  CHECK(made->name == "chat");
  CHECK(made->tip.is_null());
  CHECK(made->turns == 0);
  CHECK(made->expires_unix_ms == 0);
  CHECK(*f.catalog->open_session(f.tenant, {"chat", {}}) == *made);
  CHECK(*f.catalog->session(f.tenant, "chat") == *made);
  CHECK(sessions_of(*f.catalog, f.tenant).size() == 1);
  CHECK(f.catalog->totals().sessions == 1);
}

TEST_CASE("a session that does not exist is kNotFound to every call that does not make one",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  const auto not_found = StatusCode::kNotFound;
  CHECK(f.catalog->session(f.tenant, "chat").status().code() == not_found);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).status().code() == not_found);
  CHECK(f.catalog->pin_session(f.tenant, {"chat", true}).status().code() == not_found);
  CHECK(f.catalog->fork_session(f.tenant, {"chat", "new"}).status().code() == not_found);
  CHECK(f.catalog->renew_session(f.tenant, "chat").code() == not_found);
  CHECK(f.catalog->remove_session(f.tenant, "chat").code() == not_found);
}

TEST_CASE("a tenant sees its own sessions only, names may be the same", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->open_session("a", {"chat", {}}).ok());
  REQUIRE(f.catalog->open_session("b", {"chat", 50}).ok());
  REQUIRE(f.catalog->open_session("b", {"other", {}}).ok());
  CHECK(sessions_of(*f.catalog, "a").size() == 1);
  CHECK(sessions_of(*f.catalog, "b").size() == 2);
  CHECK(f.catalog->session("a", "chat")->ttl_seconds == 0);
  CHECK(f.catalog->session("a", "other").status().code() == StatusCode::kNotFound);
  REQUIRE(f.catalog->remove_session("a", "chat").ok());
  CHECK(f.catalog->session("b", "chat").ok());
}

TEST_CASE("a session name has 1 to kNameBytesMax bytes", "[unit][catalog]") {
  CatalogFixture f;
  const std::string longest(limits::kNameBytesMax, 'x');
  CHECK(f.catalog->open_session(f.tenant, {longest, {}}).ok());
  for (const std::string& name : {std::string(), longest + "x"}) {
    CHECK(f.catalog->open_session(f.tenant, {name, {}}).status().code() ==
          StatusCode::kInvalidArgument);
    CHECK(f.catalog->fork_session(f.tenant, {longest, name}).status().code() ==
          StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a TTL beyond the end of time is kInvalidArgument", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(f.catalog->open_session(f.tenant, {"chat", ~std::uint64_t{0}}).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(f.catalog->open_session(f.tenant, {"chat", 1'000'000'000}).ok());
}

TEST_CASE("a session's total is bytes or a share, and a fork has it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  for (const Budget& wrong : {Budget::entries(5), Budget::loss(0.5).value(), Budget::bytes(0),
                              Budget::ratio_ppm(0), Budget::ratio_ppm(1'000'001)}) {
    const Status refused = f.catalog->open_session(f.tenant, {"chat", {}, wrong}).status();
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(refused.message(), Catch::Contains("session 'chat': total is "));
  }
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}, Budget::bytes(9)}).ok());
  CHECK(f.catalog->open_session(f.tenant, {"chat", {}, {}})->total == Budget::bytes(9));
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", c.row.id}).ok());
  CHECK(f.catalog->fork_session(f.tenant, {"chat", "helper"})->total == Budget::bytes(9));
  f.crash_and_reopen();
  CHECK(f.catalog->session(f.tenant, "chat")->total == Budget::bytes(9));

  const auto held = [&] {
    std::vector<bool> each;
    const SessionTurns path = f.catalog->session_turns(f.tenant, "chat").value();
    for (const SessionTurns::Turn& turn : path.turns) each.push_back(turn.is_held);
    return each;
  };
  CHECK(f.catalog->session_turns(f.tenant, "chat")->turns[1].row->id == b.row.id);
  CHECK(held() == std::vector{false, false, true});  // the fork has its tip at the last
  f.put(tokens(10), &a);                             // of another path
  CHECK(held() == std::vector{true, false, true});
  REQUIRE(f.catalog->pin_session(f.tenant, {"helper", true}).ok());
  CHECK(held() == std::vector{true, true, true});
  CHECK_FALSE(f.catalog->open_session(f.tenant, {"chat", {}, Budget::all()})->total);
}

TEST_CASE("each turn advances the tip to a segment that stands on it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  auto row = f.catalog->advance_session(f.tenant, {"chat", a.row.id});
  REQUIRE(row.ok());
  CHECK(row->tip == a.row.id);
  CHECK(row->tip_end == 6);
  CHECK(row->turns == 1);
  row = f.catalog->advance_session(f.tenant, {"chat", c.row.id});  // two segments further
  REQUIRE(row.ok());
  CHECK(row->tip_end == 12);
  CHECK(row->turns == 2);
  row = f.catalog->advance_session(f.tenant, {"chat", c.row.id});  // repeated: no new turn
  REQUIRE(row.ok());
  CHECK(row->turns == 2);
}

TEST_CASE("a tip that does not stand on the present one is refused, with both named",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), aside = f.put(tokens(5, 900));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", b.row.id}).ok());
  for (const NewSegment* wrong : {&a, &aside}) {
    const auto refused = f.catalog->advance_session(f.tenant, {"chat", wrong->row.id});
    CHECK(refused.status().code() == StatusCode::kInvalidArgument);
    CHECK(refused.status().message().find(wrong->row.id.hex()) != std::string::npos);
    CHECK(refused.status().message().find(b.row.id.hex()) != std::string::npos);
  }
  CHECK(f.tip("chat") == b.row.id);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", SegmentId{}}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a foreign tenant's segment is no tip", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session("foreign", {"chat", {}}).ok());
  CHECK(f.catalog->advance_session("foreign", {"chat", a.row.id}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a session expires when its TTL has passed since it was opened, renewed or advanced",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  f.clock.advance_ms(9'999);
  CHECK(f.catalog->session(f.tenant, "chat").ok());
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());  // renews, keeps the TTL
  f.clock.advance_ms(9'999);
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  f.clock.advance_ms(9'999);
  REQUIRE(f.catalog->renew_session(f.tenant, "chat").ok());
  f.clock.advance_ms(9'999);
  CHECK(f.catalog->session(f.tenant, "chat")->tip == a.row.id);
  f.clock.advance_ms(1);
  CHECK(f.catalog->session(f.tenant, "chat").status().code() == StatusCode::kNotFound);
  CHECK(sessions_of(*f.catalog, f.tenant).empty());
  CHECK(f.catalog->totals().sessions == 0);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("lookups renew a session once a tenth of its TTL has passed", "[unit][catalog]") {
  msg::SessionRow row;
  CHECK_FALSE(renewal_is_due(row, 1));  // it lives for ever
  row.ttl_seconds = 100;
  row = renewed_session(row, 1'000);
  CHECK(row.expires_unix_ms == 101'000);
  CHECK_FALSE(renewal_is_due(row, 1'000));
  CHECK_FALSE(renewal_is_due(row, 9'000));
  CHECK(renewal_is_due(row, 11'000));
  CHECK(renewal_is_due(row, 200'000));
  row.ttl_seconds = std::numeric_limits<std::uint64_t>::max() / 1'000;
  row = renewed_session(row, 1'000);
  CHECK(row.expires_unix_ms > row.ttl_seconds);
  CHECK_FALSE(renewal_is_due(row, 1'000));
}

TEST_CASE("a TTL of 0 lifts an earlier one", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 0}).ok());
  f.clock.advance_ms(1'000'000'000);
  CHECK(f.catalog->session(f.tenant, "chat").ok());
}

TEST_CASE("expired sessions leave the store with a later change", "[unit][catalog]") {
  CatalogFixture f;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(f.catalog->open_session(f.tenant, {"chat" + std::to_string(i), 10}).ok());
  }
  CHECK(f.stored_rows(Table::kSessions) == 100);
  f.clock.advance_ms(10'000);
  f.put(tokens(4));
  f.put(tokens(5));
  CHECK(f.stored_rows(Table::kSessions) == 0);
  f.reopen();
  CHECK(f.catalog->totals().sessions == 0);
}

TEST_CASE("a session opened anew under an expired one's name is a new one, and stays",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  f.clock.advance_ms(10'000);
  const auto anew = f.catalog->open_session(f.tenant, {"chat", {}});
  REQUIRE(anew.ok());
  CHECK(anew->tip.is_null());
  CHECK(anew->turns == 0);
  CHECK(anew->ttl_seconds == 0);
  f.put(tokens(5, 900));
  f.reopen();
  CHECK(*f.catalog->session(f.tenant, "chat") == *anew);
}

TEST_CASE("a fork has the tip and goes its own way", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", true}).ok());
  f.clock.advance_ms(5'000);
  const auto fork = f.catalog->fork_session(f.tenant, {"chat", "fork"});
  REQUIRE(fork.ok());
  CHECK(fork->tip == a.row.id);
  CHECK(fork->tip_end == 6);
  CHECK(fork->turns == 1);
  CHECK_FALSE(fork->pinned);
  CHECK(fork->expires_unix_ms == f.clock.unix_ms() + 10'000);
  REQUIRE(f.catalog->advance_session(f.tenant, {"fork", b.row.id}).ok());
  CHECK(f.tip("chat") == a.row.id);
  CHECK(f.catalog->fork_session(f.tenant, {"chat", "fork"}).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(f.tip("fork") == b.row.id);
}

TEST_CASE("a removed session is gone; its segments stay", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  REQUIRE(f.catalog->remove_session(f.tenant, "chat").ok());
  CHECK(f.catalog->session(f.tenant, "chat").status().code() == StatusCode::kNotFound);
  CHECK(f.matched(a.path) == 6);
  CHECK(f.stored_rows(Table::kSessions) == 0);
}

TEST_CASE("sessions are the same after a restart", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"one", 10}).ok());
  REQUIRE(f.catalog->open_session(f.tenant, {"two", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"two", a.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"two", true}).ok());
  const auto before = sessions_of(*f.catalog, f.tenant);
  CHECK(before.size() == 2);
  f.crash_and_reopen();
  CHECK(sessions_of(*f.catalog, f.tenant) == before);
}

TEST_CASE("a change of a session that the store refuses is not made", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  const auto before = *f.catalog->session(f.tenant, "chat");
  const auto fails = [&](const auto& call) {
    f.store.fail_next_write(Status::unavailable("gone"));
    CHECK(call().code() == StatusCode::kUnavailable);
    CHECK(sessions_of(*f.catalog, f.tenant) == std::vector{before});
  };
  fails([&] { return f.catalog->advance_session(f.tenant, {"chat", a.row.id}).status(); });
  fails([&] { return f.catalog->pin_session(f.tenant, {"chat", true}).status(); });
  fails([&] { return f.catalog->fork_session(f.tenant, {"chat", "fork"}).status(); });
  fails([&] { return f.catalog->open_session(f.tenant, {"chat", 99}).status(); });
  fails([&] { return f.catalog->open_session(f.tenant, {"new", {}}).status(); });
  fails([&] { return f.catalog->remove_session(f.tenant, "chat"); });
}

// ---- by tip -------------------------------------------------------------------------------------

namespace {

SegmentId tip_of(unsigned char byte) {
  SegmentId id;
  id.bytes.fill(byte);
  return id;
}

msg::SessionRow session_at(const std::string& name, const SegmentId& tip) {
  msg::SessionRow row;
  row.name = name;
  row.tip = tip;
  return row;
}

std::vector<std::string> names_at(const Sessions& sessions, const SegmentId& tip,
                                  std::uint64_t now_ms = 0) {
  std::vector<std::string> names;
  sessions.each_at("tenant", tip, now_ms,
                   [&](const msg::SessionRow& row) { names.push_back(row.name); });
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("sessions are found by their tip, and no others are looked at", "[unit][catalog]") {
  Sessions sessions([](const SegmentId&, int) {});
  const SegmentId a = tip_of(1), b = tip_of(2);
  for (int i = 0; i < 1000; ++i)
    sessions.put("tenant", session_at("other-" + std::to_string(i), tip_of(3)));
  sessions.put("tenant", session_at("x", a));
  sessions.put("tenant", session_at("y", a));
  sessions.put("stranger", session_at("z", a));
  CHECK(names_at(sessions, a) == std::vector<std::string>{"x", "y"});

  sessions.put("tenant", session_at("x", b));  // advances
  CHECK(names_at(sessions, a) == std::vector<std::string>{"y"});
  CHECK(names_at(sessions, b) == std::vector<std::string>{"x"});
  sessions.erase({"tenant", "y"});
  CHECK(names_at(sessions, a).empty());
}

TEST_CASE("a pinned session is found among any number at its tip, until its time has passed",
          "[unit][catalog]") {
  Sessions sessions([](const SegmentId&, int) {});
  const SegmentId a = tip_of(1);
  for (int i = 0; i < 1000; ++i)
    sessions.put("tenant", session_at("unpinned-" + std::to_string(i), a));
  CHECK(sessions.pinned_at("tenant", a, 0) == nullptr);

  msg::SessionRow pinned = session_at("short", a);
  pinned.pinned = true;
  pinned.expires_unix_ms = 10;
  sessions.put("tenant", pinned);
  pinned.name = "long";
  pinned.expires_unix_ms = 20;
  sessions.put("tenant", pinned);
  CHECK(sessions.pinned_at("stranger", a, 0) == nullptr);
  REQUIRE(sessions.pinned_at("tenant", a, 15));
  CHECK(sessions.pinned_at("tenant", a, 15)->name == "long");
  CHECK(sessions.pinned_at("tenant", a, 20) == nullptr);
  CHECK(names_at(sessions, a, 20).size() == 1000);

  pinned.expires_unix_ms = 0;  // never
  sessions.put("tenant", pinned);
  CHECK(sessions.pinned_at("tenant", a, 1'000'000) != nullptr);
  pinned.pinned = false;
  sessions.put("tenant", pinned);
  CHECK(sessions.pinned_at("tenant", a, 15) == nullptr);
}

TEST_CASE("expired sessions are not counted, wherever the clock goes", "[unit][catalog]") {
  Sessions sessions([](const SegmentId&, int) {});
  const auto put = [&](const std::string& tenant, const std::string& name,
                       std::uint64_t expires_ms) {
    msg::SessionRow row = session_at(name, tip_of(1));
    row.expires_unix_ms = expires_ms;
    sessions.put(tenant, row);
  };
  put("tenant", "a", 10);
  put("tenant", "b", 20);
  put("tenant", "c", 0);
  put("stranger", "d", 10);
  CHECK(sessions.count("tenant", 9) == 3);
  CHECK(sessions.count(9) == 4);
  CHECK(sessions.count("tenant", 10) == 2);
  CHECK(sessions.count("stranger", 10) == 0);
  CHECK(sessions.count(10) == 2);
  CHECK(sessions.count("tenant", 9) == 3);  // the clock was set back
  CHECK(sessions.count("tenant", 30) == 1);
  CHECK(sessions.count(30) == 1);

  put("tenant", "a", 40);  // renewed
  CHECK(sessions.count("tenant", 30) == 2);
  put("tenant", "a", 25);  // too late
  CHECK(sessions.count("tenant", 30) == 1);
  sessions.erase({"tenant", "b"});
  CHECK(sessions.count("tenant", 30) == 1);
  CHECK(sessions.count("tenant", 0) == 2);
  sessions.erase({"tenant", "a"});
  sessions.erase({"tenant", "c"});
  CHECK(sessions.count("tenant", 30) == 0);
  CHECK(sessions.count(30) == 0);
  CHECK(sessions.count(0) == 1);
}
