// precisctl's lists: tables that fit a terminal, filters, orders and totals.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "client/cli/activity.h"
#include "client/cli/bulk.h"
#include "client/cli/segment_list.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "client/cli/watch.h"
#include "tests/unit/client/fake_server.h"

namespace {

using namespace precis;
using namespace precis::cli;
using namespace precis::testing;
using Catch::Matchers::Contains;

SegmentId id_of(std::size_t n) {
  SegmentId id;
  id.bytes[0] = static_cast<std::uint8_t>(n + 1);
  return id;
}

// Serves `rows` in pages of two.
struct Pages {
  std::vector<msg::SegmentInfo> rows;
  std::size_t pages = 0;

  void operator()(FakeServer& server, const msg::Request& request) {
    const auto& list = std::get<msg::ListPrefixes>(request.body);
    std::size_t at = list.after.empty() ? 0 : static_cast<std::size_t>(list.after[0] - 'a');
    msg::Segments page;
    for (; at < rows.size() && page.rows.size() < 2; ++at) page.rows.push_back(rows[at]);
    if (at < rows.size()) page.next = std::string(1, static_cast<char>('a' + at));
    ++pages;
    server.reply(request.id, page);
  }
};

// Five segments, the newest first, with these bytes, hits and times of last use.
Pages five() {
  Pages pages;
  const std::uint64_t now = now_unix_ms();
  for (std::size_t i = 0; i < 5; ++i) {
    msg::SegmentInfo row;
    row.id = id_of(i);
    row.end = static_cast<std::uint32_t>(10 + (i * 7) % 5);
    row.stored_bytes = 100 * (1 + (i * 3) % 5);
    row.original_bytes = 1000;
    row.hits = (i * 2) % 5;
    row.priority = static_cast<std::uint32_t>(10 * ((i * 3) % 5));
    row.created_unix_ms = now - 1000 * (i + 1);
    row.last_used_unix_ms = i == 2 ? now - 100'000'000 : 0;
    pages.rows.push_back(row);
  }
  pages.rows[4].created_unix_ms = now - 200'000'000;
  return pages;
}

std::vector<std::size_t> listed(Pages& pages, const ListOptions& options,
                                SegmentList* whole = nullptr) {
  FakeServer server([&](FakeServer& s, const msg::Request& request) { pages(s, request); });
  const auto list = list_segments(*server.connect().value(), options);
  REQUIRE(list.ok());
  if (whole) *whole = *list;
  std::vector<std::size_t> order;
  for (const msg::SegmentInfo& row : list->rows) order.push_back(row.id.bytes[0] - 1u);
  return order;
}

TEST_CASE("a table that is too wide leaves out columns, then cuts cells", "[client]") {
  Table table({{"NAME", false, 0, 6}, {"EXTRA", false, 2}, {"MORE", false, 1}, {"N", true}});
  table.add({"caf\xc3\xa9-au-lait", "12345678", "abc", "10"});
  const std::string whole = table.text();
  CHECK(table.text(100) == whole);
  CHECK(whole.find("12345678") != std::string::npos);
  const std::string some = table.text(22);
  CHECK(some == "NAME          MORE   N\ncaf\xc3\xa9-au-lait  abc   10\n");
  CHECK(table.text(16) == "NAME    MORE   N\ncaf\xc3\xa9-\xe2\x80\xa6  abc   10\n");
  CHECK(table.text(10) == "NAME     N\ncaf\xc3\xa9-\xe2\x80\xa6  10\n");
  CHECK(table.text(1) == table.text(10));  // the rest stays
}

TEST_CASE("segments are listed by every order, and reversed", "[client]") {
  Pages pages = five();
  ListOptions options;
  CHECK(listed(pages, options) == std::vector<std::size_t>{0, 1, 2, 3, 4});
  const auto by = [&](const char* name) {
    options.order = parse_order(name);
    return listed(pages, options);
  };
  CHECK(by("bytes") == std::vector<std::size_t>{3, 1, 4, 2, 0});
  CHECK(by("keep") == std::vector<std::size_t>{3, 1, 4, 2, 0});
  CHECK(by("hits") == std::vector<std::size_t>{2, 4, 1, 3, 0});
  CHECK(by("tokens") == std::vector<std::size_t>{2, 4, 1, 3, 0});
  CHECK(by("priority") == std::vector<std::size_t>{3, 1, 4, 2, 0});
  CHECK(by("used") == std::vector<std::size_t>{2, 0, 1, 3, 4});
  options.reverse = true;
  CHECK(by("bytes") == std::vector<std::size_t>{0, 2, 4, 1, 3});
  CHECK(by("created") == std::vector<std::size_t>{4, 3, 2, 1, 0});
}

TEST_CASE("a limit ends the list early in the service's order, and keeps the first of another",
          "[client]") {
  Pages pages = five();
  ListOptions options;
  options.limit = 2;
  SegmentList list;
  CHECK(listed(pages, options, &list) == std::vector<std::size_t>{0, 1});
  CHECK(pages.pages == 2);
  CHECK_FALSE(list.chosen);
  CHECK_THAT(totals_text(list), Contains("2 segments: ") && Contains("more segments match"));

  options.order = SegmentOrder::kBytes;
  CHECK(listed(pages, options, &list) == std::vector<std::size_t>{3, 1});
  CHECK(list.listed.stored_bytes == 900);
  CHECK(list.chosen.value().segments == 5);
  CHECK(list.chosen->stored_bytes == 1500);
  CHECK_THAT(totals_text(list), Contains("of all that match, 5 segments: "));
  options.all = true;
  CHECK(listed(pages, options, &list).size() == 5);
  CHECK_THAT(totals_text(list), !Contains("match"));
  // There are exactly as many segments as the limit, so none is left out.
  options = {};
  options.limit = 5;
  CHECK(listed(pages, options, &list).size() == 5);
  CHECK(list.chosen);
}

TEST_CASE("segments are chosen by age and size", "[client]") {
  Pages pages = five();
  ListOptions options;
  options.filter.unused_ms = parse_age("1d", "--unused").value();
  CHECK(listed(pages, options) == std::vector<std::size_t>{2, 4});  // one was never used
  options.filter.larger_bytes = 200;
  CHECK(listed(pages, options) == std::vector<std::size_t>{4});
  options.filter.unused_ms.reset();
  CHECK(listed(pages, options) == std::vector<std::size_t>{1, 3, 4});
}

TEST_CASE("ages and sizes parse, and others are refused by the option's name", "[client]") {
  CHECK(parse_age("90s", "--unused").value() == 90'000);
  CHECK(parse_age("1.5h", "--unused").value() == 5'400'000);
  CHECK(parse_age("2w", "--unused").value() == 1'209'600'000);
  for (const char* wrong : {"", "7", "d", "7 d", "-1d", "1y", "nand", "1e99d"}) {
    CHECK_THAT(parse_age(wrong, "--unused").status().message(), Contains("--unused is '"));
  }
  CHECK(parse_bytes("1GiB", "--larger").value() == 1u << 30);
  for (const char* wrong : {"", "0.5", "12 entries", "1XB"}) {
    CHECK_THAT(parse_bytes(wrong, "--larger").status().message(), Contains("--larger is '"));
  }
  CHECK(parse_interval("0.5", "--watch").value().count() == 500);
  CHECK(parse_interval("250ms", "--watch").value().count() == 250);
  for (const char* wrong : {"", "0", "s", "1m", "3601"}) {
    CHECK_FALSE(parse_interval(wrong, "--watch").ok());
  }
}

TEST_CASE("parents whose children are not all chosen are kept", "[client]") {
  // 0 is the parent of 1 and 2; 2 is the parent of 3, which is not chosen.
  Chosen chosen;
  chosen.segments = {{id_of(0), {}, 0, 2, 0, 1},
                     {id_of(1), id_of(0), 5, 0, 0, 2},
                     {id_of(2), id_of(0), 5, 1, 0, 4}};
  CHECK(keep_parents(chosen) == 2);
  REQUIRE(chosen.segments.size() == 1);
  CHECK(chosen.segments[0].id == id_of(1));
  CHECK(chosen.stored_bytes == 2);
  chosen.segments = {{id_of(0), {}, 0, 1, 0, 1},
                     {id_of(2), id_of(0), 5, 1, 0, 4},
                     {id_of(3), id_of(2), 9, 0, 0, 8}};
  CHECK(keep_parents(chosen) == 0);
  CHECK(chosen.stored_bytes == 13);
}

TEST_CASE("rates are per second, and count from a restart", "[client]") {
  Reading before, after;
  before.at_seconds = 10;
  after.at_seconds = 12;
  before.status.uptime_seconds = 100;
  after.status.uptime_seconds = 102;
  before.metrics = {{"precis_gets_total", 10}, {"precis_lookups_total", 5}};
  after.metrics = {
      {"precis_gets_total", 30}, {"precis_lookups_total", 9}, {"precis_lookup_hits_total", 3}};
  const auto rate = [](const Activity& activity, const std::string& name) {
    for (const Activity::Rate& each : activity.rates) {
      if (each.name == name) return each.per_second;
    }
    return -1.0;
  };
  Activity activity = activity_between(before, after);
  CHECK(rate(activity, "gets") == 10);
  CHECK(rate(activity, "puts") == 0);
  CHECK(activity.hit_share.value() == 0.75);
  CHECK_FALSE(activity.memory_share);
  const Json json = to_json(activity, after);
  CHECK(json["rates"]["gets"] == 10.0);
  CHECK(json["totals"]["gets"] == 30);
  CHECK(json["memory_share"].is_null());
  CHECK_THAT(activity_text(activity, after, 80), Contains("75.0% of lookups"));
  after.status.uptime_seconds = 3;
  CHECK(rate(activity_between(before, after), "gets") == 10);  // 30 in 3 s
}

msg::TenantRow tenant_use(const std::string& name, std::uint64_t bytes, std::uint64_t hits,
                          std::uint64_t hit_tokens = 0) {
  msg::TenantRow row;
  row.name = name;
  row.stored_bytes = bytes;
  row.hits = hits;
  row.hit_tokens = hit_tokens;
  return row;
}

std::vector<std::string> names_of(const Consumers& consumers) {
  std::vector<std::string> names;
  for (const Consumer& row : consumers.rows) names.push_back(row.name);
  return names;
}

TEST_CASE("tenants come by hits per second, then stored bytes, then name", "[client]") {
  Reading before, after;
  before.at_seconds = 10;
  after.at_seconds = 12;
  before.status.uptime_seconds = 100;
  after.status.uptime_seconds = 102;
  before.consumers = tenant_consumers(
      std::vector{tenant_use("idle", 500, 90), tenant_use("busy", 10, 4, 100),
                  tenant_use("small", 1, 7), tenant_use("also", 1, 7), tenant_use("reset", 2, 9)});
  std::vector<msg::TenantRow> rows{tenant_use("small", 1, 7),       tenant_use("also", 1, 7),
                                   tenant_use("idle", 500, 90),     tenant_use("new", 3, 1000),
                                   tenant_use("busy", 10, 14, 164), tenant_use("reset", 2, 1)};
  rows[4].puts = 2;
  after.consumers = tenant_consumers(rows);
  Activity activity = activity_between(before, after);
  // Tenant "new" has no rate yet, whatever its counter says. The rate of a reset counter is not
  // negative.
  CHECK(names_of(activity.consumers) ==
        std::vector<std::string>{"busy", "idle", "new", "reset", "also", "small"});
  const std::vector<Consumer>& sorted = activity.consumers.rows;
  CHECK(sorted[0].hits_per_second.value() == 5);
  CHECK(sorted[0].hit_tokens_per_second.value() == 32);
  CHECK(sorted[1].hits_per_second.value() == 0);
  CHECK_FALSE(sorted[2].hits_per_second);
  CHECK(sorted[3].hits_per_second.value() == 0);
  const Json json = to_json(activity, after);
  CHECK_FALSE(json.contains("models"));
  REQUIRE(json["tenants"].size() == 6);
  CHECK(json["tenants"][0] == Json{{"name", "busy"},
                                   {"stored_bytes", 10},
                                   {"hits_per_second", 5.0},
                                   {"hit_tokens_per_second", 32.0},
                                   {"puts", 2}});
  CHECK(json["tenants"][2]["hits_per_second"].is_null());
  const std::string text = activity_text(activity, after, 0);
  CHECK_THAT(text, Contains("\nTENANT  STORED  HITS/S  HIT TOKENS/S  PUTS\n") &&
                       Contains("\nbusy      10 B       5            32     2\n") &&
                       Contains("\nnew        3 B       -             -     0\n"));

  after.status.uptime_seconds = 2;  // it was restarted: all counters began at 0
  activity = activity_between(before, after);
  CHECK(names_of(activity.consumers).front() == "new");
  CHECK(activity.consumers.rows[0].hits_per_second.value() == 500);
  after.status.uptime_seconds = 100;
  after.at_seconds = before.at_seconds;  // no time has passed
  activity = activity_between(before, after);
  for (const Consumer& row : activity.consumers.rows) CHECK_FALSE(row.hits_per_second);
  CHECK(names_of(activity.consumers).front() == "idle");
}

TEST_CASE("models of one name are one row, and are not compared with tenants", "[client]") {
  std::vector<msg::ModelRow> models(3);
  models[0].model.name = models[2].model.name = "chat";
  models[1].model.name = "code";
  for (msg::ModelRow& row : models) row.stored_bytes = 100;
  for (const std::size_t i : {0u, 2u}) models[i].hits = 8;  // the two models named "chat"
  Consumers before = model_consumers(models), now = before;
  CHECK(names_of(now) == std::vector<std::string>{"chat", "code"});
  CHECK(now.rows[0].stored_bytes == 200);
  now.rows[0].hits = 12;
  set_rates(&before, 2, now);
  CHECK(now.rows[0].hits_per_second.value() == 2);
  CHECK_FALSE(consumers_json(now)[0].contains("puts"));
  before.are_tenants = true;
  set_rates(&before, 2, now);
  CHECK_FALSE(now.rows[0].hits_per_second);
}

TEST_CASE("top's lists fit a terminal, the largest consumers before the newest segments",
          "[client]") {
  Reading reading;
  reading.newest = five().rows;
  std::vector<msg::TenantRow> rows;
  for (std::size_t i = 0; i < 30; ++i) rows.push_back(tenant_use("t" + std::to_string(i), i, 0));
  reading.consumers = tenant_consumers(rows);
  const Activity activity = activity_between(reading, reading);
  const auto lines_of = [](const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count(text, '\n'));
  };
  const std::string all = activity_text(activity, reading, 80);
  CHECK_THAT(all, Contains("TENANT (10 of 30)") && Contains("newest segments"));
  const std::size_t rates = lines_of(all) - (2 + 10) - (3 + 5);
  const auto with = [&](std::size_t left) {
    const std::string text = activity_text(activity, reading, 80, rates + left);
    CHECK(lines_of(text) <= rates + left);
    return text;
  };
  CHECK_THAT(with(2), !Contains("TENANT") && !Contains("newest"));
  CHECK_THAT(with(3), Contains("TENANT (1 of 30)") && Contains("\nt29 "));
  CHECK_THAT(with(15), Contains("TENANT (10 of 30)") && !Contains("newest"));
  CHECK(lines_of(with(16)) == rates + 16);
  CHECK_THAT(with(20), Contains("TENANT (10 of 30)") && Contains("newest"));
  CHECK_THAT(with(25), Contains("TENANT (15 of 30)") && Contains("newest"));
  CHECK_THAT(with(60), Contains("TENANT  ") && Contains("\nt0 "));
}

TEST_CASE("Ctrl-C ends a removal after the segment in progress, and what was done is known",
          "[client]") {
  std::size_t removed = 0;
  FakeServer server([&](FakeServer& s, const msg::Request& request) {
    if (++removed == 2) std::raise(SIGINT);
    s.reply(request.id, msg::Removed{1, 10});
  });
  Chosen chosen;
  for (std::size_t i = 0; i < 5; ++i) chosen.segments.push_back({id_of(i), {}, 0, 0, 0, 10});
  catch_interrupts();
  const Removal removal = remove_chosen(*server.connect().value(), chosen, {}, false);
  CHECK(removal.status.code() == StatusCode::kCanceled);
  CHECK(removal.segments == 2);
  CHECK(removal.bytes == 20);
  CHECK(removed == 2);
  catch_interrupts();  // for the other tests
  CHECK_FALSE(interrupted());
}

}  // namespace
