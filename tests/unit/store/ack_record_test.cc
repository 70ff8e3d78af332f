// The record of changes that survive a crash of the machine, across several starts.
#include "cachesvc/store/ack_record.h"

#include <catch2/catch.hpp>

#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::TestDir;

namespace {

std::unique_ptr<AckRecord> open_record(const TestDir& dir, const std::string& boot) {
  auto record = AckRecord::open(dir.path() + "/acknowledged", {boot, /*sync_in_time=*/false});
  INFO(record.status().to_string());
  REQUIRE(record.ok());
  return std::move(record).value();
}

}  // namespace

TEST_CASE("a start that dies before its first sync forgets nothing of what was synced before it",
          "[unit][store]") {
  const TestDir dir;
  {
    const auto record = open_record(dir, "first");
    REQUIRE(record->save(0, {}).ok());
    record->note(5, /*synced=*/true);
    record->note(7, /*synced=*/false);
  }
  for (const char* boot : {"second", "third"}) {
    CAPTURE(boot);
    const auto record = open_record(dir, boot);
    CHECK(record->before().expected == 5);
    CHECK(record->before().last == 7);
    REQUIRE(record->save(7, {}).ok());  // as found in the rows
  }
}

TEST_CASE("changes that a start finds to be lost are not expected of the next one",
          "[unit][store]") {
  const TestDir dir;
  {
    const auto record = open_record(dir, "first");
    REQUIRE(record->save(0, {}).ok());
    record->note(5, /*synced=*/true);
  }
  REQUIRE(open_record(dir, "second")->save(3, RecoveryDoubt{2, 1, false}).ok());
  CHECK(open_record(dir, "third")->before().expected == 3);
}
