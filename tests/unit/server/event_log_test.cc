#include "cachesvc/server/event_log.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

using Catch::Matchers::Contains;
using Kind = msg::KvEvent::Kind;

const std::string kRed = "red", kBlue = "blue";

msg::KvEvent event(std::uint32_t begin, std::size_t blocks = 0) {
  msg::KvEvent event;
  event.begin = begin;
  event.blocks.resize(blocks);
  return event;
}

std::vector<std::uint32_t> begins(const msg::Events& page) {
  std::vector<std::uint32_t> begins;
  for (const msg::KvEvent& row : page.rows) begins.push_back(row.begin);
  return begins;
}

}  // namespace

TEST_CASE("events are read in order from any position, each tenant its own", "[unit][server]") {
  EventLog log(7);
  for (std::uint32_t i = 1; i <= 5; ++i) log.add(kRed, event(i));
  log.add(kBlue, event(9));
  const auto first = log.read(kRed, log.find(kRed, "oldest")->number, 2);
  CHECK(begins(first) == std::vector<std::uint32_t>{1, 2});
  const auto second = log.read(kRed, log.find(kRed, first.next)->number, 100);
  CHECK(begins(second) == std::vector<std::uint32_t>{3, 4, 5});
  CHECK(second.rows.back().position == second.next);
  CHECK(log.read(kRed, log.find(kRed, second.next)->number, 100).rows.empty());
  const auto middle = log.find(kRed, first.rows.front().position);
  CHECK(begins(log.read(kRed, middle->number, 1)) == std::vector<std::uint32_t>{2});
  CHECK(begins(log.read(kBlue, log.find(kBlue, "oldest")->number, 9)) ==
        std::vector<std::uint32_t>{9});
  CHECK(log.find("nobody", "oldest")->number == 0);
  CHECK(log.find(kRed, "newest")->number == 5);
  CHECK(log.find(kRed, "")->listed == SegmentId());
}

TEST_CASE("a new tenant does not read the events of an earlier one of its name", "[unit][server]") {
  EventLog log(7);
  for (std::uint32_t i = 1; i <= 3; ++i) log.add(kRed, event(i));
  log.forget(kRed);
  log.forget("nobody");
  CHECK(log.read(kRed, log.find(kRed, "oldest")->number, 9).rows.empty());
  CHECK(log.find(kRed, log.position(1))->lost == 2u);
  log.add(kRed, event(4));
  CHECK(begins(log.read(kRed, log.find(kRed, "oldest")->number, 9)) ==
        std::vector<std::uint32_t>{4});
}

TEST_CASE("a reader that falls behind is told how many events it has lost", "[unit][server]") {
  EventLog log(7, {.events_per_tenant = 3});
  log.add(kRed, event(1));
  const std::string position = log.position(1);
  CHECK(!log.find(kRed, position)->lost);
  for (std::uint32_t i = 2; i <= 4; ++i) log.add(kRed, event(i));
  CHECK(!log.find(kRed, position)->lost);  // the next one is the oldest
  for (std::uint32_t i = 5; i <= 6; ++i) log.add(kRed, event(i));
  CHECK(log.find(kRed, position)->lost == 2u);
  const msg::Events told = log.lost(kRed, 2);
  REQUIRE(told.rows.size() == 1);
  CHECK(told.rows[0].kind == Kind::kLost);
  CHECK(told.rows[0].lost == 2);
  // The reader goes on with the list of what is stored, and then with the events from now on.
  CHECK(log.find(kRed, told.next)->listed == SegmentId());
  CHECK(log.find(kRed, told.next)->number == 6);
}

TEST_CASE("another epoch is a loss, because the numbers are those of another process",
          "[unit][server]") {
  EventLog before(7), now(8);
  before.add(kRed, event(1));
  now.add(kRed, event(1));
  CHECK(now.find(kRed, before.position(1))->lost == 0u);
  CHECK(!now.find(kRed, now.position(1))->lost);
}

TEST_CASE("a position that is none is refused", "[unit][server]") {
  EventLog log(7);
  log.add(kRed, event(1));
  const std::string right = log.position(1, SegmentId());
  CHECK(log.find(kRed, right).ok());
  for (const std::string& wrong :
       {std::string("x"), std::string(":"), std::string("0000000000000007"),
        std::string("0000000000000007:"), std::string("0000000000000007:x"),
        std::string("0000000000000007:-1"), std::string("0000000000000007:1:"),
        std::string("0000000000000007:1:00"), std::string("0000000000000007:1 "),
        std::string("0000000000000007:99999999999999999999"), right + "0", log.position(2)}) {
    CAPTURE(wrong);
    CHECK(log.find(kRed, wrong).status().code() == StatusCode::kInvalidArgument);
  }
  CHECK_THAT(log.find(kRed, log.position(2)).status().message(), Contains("the newest event"));
}

TEST_CASE("what is kept is bounded, and the tenant with the most loses first", "[unit][server]") {
  EventLog log(7, {.events_per_tenant = 100, .bytes_per_tenant = 50'000, .bytes = 60'000});
  log.add(kBlue, event(1, 100));
  for (std::uint32_t i = 0; i < 100; ++i) log.add(kRed, event(i, 300));
  CHECK(log.find(kBlue, log.position(0))->lost == std::nullopt);
  CHECK(log.find(kRed, log.position(0))->lost > 90u);
  for (std::uint32_t i = 0; i < 100; ++i) log.add(kRed, event(i, 300));
  CHECK(log.find(kBlue, log.position(0))->lost == std::nullopt);
  // An event that is larger than all that may be kept is not kept.
  log.add(kRed, event(1, 10'000));
  CHECK(log.find(kRed, log.position(200))->lost == 1u);
  CHECK(!log.find(kRed, "oldest")->lost);
}

TEST_CASE("a page has a bound in bytes, and at least one event", "[unit][server]") {
  EventLog log(7);
  const std::size_t half = limits::kEventPageBytes / sizeof(Digest) / 2;
  for (std::uint32_t i = 1; i <= 3; ++i) log.add(kRed, event(i, half + 1));
  log.add(kRed, event(4, 3 * half));
  CHECK(begins(log.read(kRed, 0, 100)) == std::vector<std::uint32_t>{1});
  CHECK(begins(log.read(kRed, 3, 100)) == std::vector<std::uint32_t>{4});
}

}  // namespace precis
