// precisctl fsck with a service that has damage or is busy.
#include <catch2/catch.hpp>
#include <set>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "tests/unit/client/fake_server.h"

namespace {

using namespace precis;
using namespace precis::testing;

enum class Health : std::uint8_t { kWhole, kDamaged, kBusy };

// A service with one segment per entry of `segments`; an id begins with its index in that list.
struct Segments {
  std::vector<Health> segments;
  std::set<std::size_t> children = {};  // each has the segment before it as parent
  std::set<std::size_t> removed = {};
  msg::ServerStatus status = {};

  void operator()(FakeServer& server, const msg::Request& request) {
    if (std::holds_alternative<msg::GetStatus>(request.body)) {
      status.tenant = "red";
      return server.reply(request.id, status);
    }
    if (std::holds_alternative<msg::ListPrefixes>(request.body)) {
      msg::Segments list;
      for (std::size_t i = 0; i < segments.size(); ++i) {
        msg::SegmentInfo info;
        info.id.bytes.fill(static_cast<std::uint8_t>(i + 1));
        info.end = 1;
        if (children.contains(i)) info.parent.bytes.fill(static_cast<std::uint8_t>(i));
        info.stored_bytes = 10;
        list.rows.push_back(info);
      }
      return server.reply(request.id, list);
    }
    if (const auto* remove = std::get_if<msg::RemovePrefix>(&request.body)) {
      removed.insert(remove->segment.bytes[0] - 1u);
      return server.reply(request.id, msg::Removed{1, 10});
    }
    switch (segments.at(std::get<msg::CheckPrefix>(request.body).segment.bytes[0] - 1u)) {
      case Health::kWhole: return server.reply(request.id, msg::Checked{10, {}});
      case Health::kDamaged: return server.reply(request.id, msg::Checked{0, "layer 1 has rotted"});
      case Health::kBusy: return server.refuse(request.id, Status::rejected("no memory for it"));
    }
  }
};

struct Outcome {
  Status status;
  std::string out;
};
Outcome fsck(Segments& service, bool repair = false, bool json = false) {
  FakeServer server([&](FakeServer& self, const msg::Request& request) { service(self, request); });
  Outcome outcome;
  const auto client = server.connect().value();
  outcome.status = cli::check_store({*client, outcome.out, json}, repair);
  return outcome;
}

TEST_CASE("fsck reports damage even where other segments could not be read", "[client]") {
  Segments service{{Health::kBusy, Health::kDamaged, Health::kWhole}};
  const Outcome found = fsck(service);
  CHECK(found.status.code() == StatusCode::kCorruption);
  CHECK_THAT(found.status.message(),
             Catch::Contains("of 2 segments 1 is damaged and 0 have a damaged ancestor") &&
                 Catch::Contains("1 segment could not be read"));
  CHECK_THAT(found.out,
             Catch::Contains("damaged: layer 1 has rotted") && Catch::Contains("not read: 0101"));
  const auto report = cli::parse_json(fsck(service, /*repair=*/false, /*json=*/true).out);
  CHECK(report["damaged"].size() == 1);
  CHECK(report["unread"].size() == 1);
  CHECK(service.removed.empty());
}

TEST_CASE("fsck is not content where acknowledged changes are missing", "[client]") {
  Segments service{{Health::kWhole}};
  CHECK(fsck(service).status == Status());
  service.status.doubtful_recovery = true;
  service.status.lost_changes = 9;
  service.status.kept_bytes = 4096;
  const Outcome found = fsck(service);
  CHECK(found.status.code() == StatusCode::kCorruption);
  CHECK_THAT(found.status.message(), Catch::Contains("9 changes") &&
                                         Catch::Contains("--accept-loss 9") &&
                                         Catch::Contains("4.00 KiB"));
  CHECK_THAT(found.out, Catch::Contains("missing: 9 changes"));
  const auto report = cli::parse_json(fsck(service, /*repair=*/false, /*json=*/true).out);
  CHECK(report["recovery"]["lost_changes"] == 9);
}

TEST_CASE("fsck says that payload is kept for a doubtful recovery alone", "[client]") {
  Segments service{{Health::kWhole}};
  const bool doubtful = GENERATE(true, false);
  service.status.doubtful_recovery = doubtful;
  service.status.kept_bytes = 4096;
  const auto report = cli::parse_json(fsck(service, /*repair=*/false, /*json=*/true).out);
  CHECK(report["recovery"]["kept_bytes"] == (doubtful ? 4096 : 0));
}

TEST_CASE("fsck counts what stands on damage apart from what can be read", "[client]") {
  using enum Health;
  Segments service{{kWhole, kDamaged, kWhole, kWhole, kWhole}, /*children=*/{1, 2, 3}};
  const Outcome found = fsck(service);
  CHECK_THAT(found.status.message(),
             Catch::Contains("of 5 segments 1 is damaged and 2 have a damaged ancestor"));
  CHECK_THAT(found.out, Catch::Contains("tenant red: 2 segments, 20 B: whole\n") &&
                            Catch::Contains("2 segments, 20 B: whole, but with a damaged"));
  const auto report = cli::parse_json(fsck(service, /*repair=*/false, /*json=*/true).out);
  CHECK(report["whole_segments"] == 2);
  CHECK(report["on_damaged_segments"] == 2);
}

TEST_CASE("fsck has timed out where all that it could read is whole, or was removed", "[client]") {
  const bool damage = GENERATE(true, false);
  Segments service{{Health::kBusy, damage ? Health::kDamaged : Health::kWhole}};
  CHECK(fsck(service, /*repair=*/damage).status.code() == StatusCode::kTimedOut);
  CHECK(service.removed.size() == (damage ? 1 : 0));
}

TEST_CASE("fsck of a store that is whole is well", "[client]") {
  Segments service{{Health::kWhole, Health::kWhole}};
  const Outcome found = fsck(service);
  CHECK(found.status.ok());
  CHECK(found.out == "tenant red: 2 segments, 20 B: whole\n");
  CHECK(cli::parse_json(fsck(service, /*repair=*/false, /*json=*/true).out)["tenant"] == "red");
}

}  // namespace
