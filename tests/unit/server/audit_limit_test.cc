#include "cachesvc/server/audit_limit.h"

#include <catch2/catch.hpp>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kLine = 300;
constexpr std::size_t kPerMinute = limits::kAuditRefusedBytesPerMinute / kLine;

class FakeClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 0; }
  std::uint64_t monotonic_ns() const override { return now_ms_ * 1'000'000; }
  void advance_ms(std::uint64_t ms) { now_ms_ += ms; }

 private:
  std::uint64_t now_ms_ = 1'000'000;
};

struct Fixture {
  FakeClock clock;
  AuditLimit limit{clock};

  // Makes `count` refusals; returns how many of them get a line.
  std::size_t refuse(std::size_t count, const std::string& address = "10.0.0.1",
                     const std::string& what = "Connect",
                     const Status& why = Status::denied("no")) {
    static const std::string kConnect = "Connect", kGet = "Get";
    std::size_t lines = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const AuditWho who{"tenant", "client", address + ":" + std::to_string(next_port_++)};
      const AuditEvent event{.what = what == kGet ? kGet : kConnect, .outcome = why};
      lines += limit.take(who, event, kLine) ? 1 : 0;
    }
    return lines;
  }

 private:
  std::size_t next_port_ = 1;
};

}  // namespace

TEST_CASE("of refusals that repeat the first have a line each, and one says how many more",
          "[unit][server]") {
  Fixture f;
  CHECK(f.refuse(1000) == limits::kAuditRepeatsToldMax);
  // Another address, kind or outcome is counted separately.
  CHECK(f.refuse(1, "10.0.0.2") == 1);
  CHECK(f.refuse(1, "10.0.0.1", "Get") == 1);
  CHECK(f.refuse(1, "10.0.0.1", "Connect", Status::version("old")) == 1);
  CHECK(f.limit.due().empty());
  f.clock.advance_ms(limits::kAuditRepeatMs);
  const auto lines = f.limit.due();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].who.from == "10.0.0.1");
  CHECK(lines[0].who.tenant.empty());  // anyone can claim to be any tenant
  CHECK(lines[0].event.what == "Connect");
  CHECK(lines[0].event.outcome.code() == StatusCode::kPermissionDenied);
  CHECK(lines[0].event.outcome.message() ==
        "and " + std::to_string(1000 - limits::kAuditRepeatsToldMax) + " more from this address");
  CHECK(f.limit.due().empty());
  CHECK(f.refuse(1000) == limits::kAuditRepeatsToldMax);
}

TEST_CASE("local users have lines of their own, whatever their processes are", "[unit][server]") {
  FakeClock clock;
  AuditLimit limit{clock};
  const auto take = [&](int uid, int pid) {
    const AuditWho who{.from = "unix: uid " + std::to_string(uid) + ", pid " + std::to_string(pid)};
    return limit.take(who, {.what = "Connect", .outcome = Status::denied("no")}, kLine);
  };
  int lines = 0;
  for (int pid = 1; pid <= 100; ++pid) lines += take(1000, pid) ? 1 : 0;
  CHECK(lines == limits::kAuditRepeatsToldMax);
  CHECK(take(1001, 7));
  clock.advance_ms(limits::kAuditRepeatMs);
  const auto due = limit.due();
  REQUIRE(due.size() == 1);
  CHECK(due[0].who.from == "unix: uid 1000");
}

TEST_CASE("refusals of many addresses are bounded by the minute, and counted", "[unit][server]") {
  Fixture f;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < 10 * kPerMinute; ++i) {
    lines += f.refuse(1, "10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256));
  }
  CHECK(lines == kPerMinute);
  // Refusals of admitted clients have lines of their own.
  CHECK(f.refuse(1, "10.9.9.9", "Get") == 1);
  CHECK(f.limit.due().empty());
  f.clock.advance_ms(60'000);
  const auto due = f.limit.due();
  REQUIRE(due.size() == 1);
  CHECK(due[0].event.what == "Suppressed");
  CHECK(due[0].event.of ==
        std::to_string(9 * kPerMinute) + " refusals of clients that were not admitted");
  CHECK(f.refuse(1, "10.9.9.8") == 1);
}

TEST_CASE("lines that say how many more are bounded as well", "[unit][server]") {
  Fixture f;
  std::size_t lines = 0, counted = 0, all = 0;
  for (int second = 0; second < 600; ++second) {
    for (int i = 0; i < 200; ++i) {
      lines += f.refuse(10, "10.0.0." + std::to_string(i));
      all += 10;
    }
    f.clock.advance_ms(1000);
    counted += f.limit.due().size();
  }
  CHECK(lines * kLine + counted * kLine <= 11 * limits::kAuditRefusedBytesPerMinute);
  CHECK(lines + counted > 0);
  CHECK(all > 100 * (lines + counted));
}

TEST_CASE("nothing that was counted is forgotten at the end", "[unit][server]") {
  Fixture f;
  f.refuse(100);
  f.refuse(100, "10.0.0.1", "Get");
  const auto lines = f.limit.due(/*all=*/true);
  REQUIRE(lines.size() == 2);
  CHECK(f.limit.due(/*all=*/true).empty());
}

}  // namespace precis
