// Applications of changed budgets to what is stored: in the background, one at a time for a tenant.
#include <catch2/catch.hpp>

#include "tests/integration/precisctl_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kTokens = 400;

class Applications : protected PrecisctlFixture {
 protected:
  std::vector<msg::SegmentInfo> put_many(int count) {
    std::vector<msg::SegmentInfo> stored;
    PutOptions how;
    how.keep = Budget::ratio(0.8).value();
    for (int i = 0; i < count; ++i) stored.push_back(store(kTokens, how));
    return stored;
  }
  static msg::SetBudget to(double keep) {
    msg::SetBudget change;
    change.keep = Budget::ratio(keep).value();
    change.apply_to_stored = true;
    return change;
  }
  msg::BudgetApplication ended() {
    msg::BudgetApplication state = client->application().value();
    while (state.state == "running") state = client->application().value();
    return state;
  }
};

TEST_CASE_METHOD(Applications, "an application goes on without its client", "[integration]") {
  CHECK(client->application()->number == 0);
  const auto stored = put_many(5);
  const auto set = client->set_budget(to(0.3));
  REQUIRE(set.ok());
  const msg::BudgetApplication done = ended();
  CHECK(done.state == "done");
  CHECK(set->application == done.number);  // the answer tells the client the number
  CHECK(client->budgets({})->application == 0);
  CHECK(done.segments == 5);
  CHECK(done.done_segments == 5);
  CHECK(done.trimmed_segments == 5);
  CHECK(done.bytes == done.stored_bytes + done.freed_bytes);
  CHECK(done.kept_mass.size() == 4);
  CHECK(done.ended_unix_ms >= done.started_unix_ms);
  for (const auto& each : stored) {
    CHECK(client->segment(each.id)->trimmed == Budget::ratio(0.3).value());
  }
}

TEST_CASE_METHOD(Applications, "one application runs at a time, and can be canceled",
                 "[integration]") {
  put_many(60);
  REQUIRE(client->set_budget(to(0.6)).ok());
  const Status second = client->set_budget(to(0.4)).status();
  const std::uint64_t number = client->application()->number;
  const Status other = client->cancel_application(number + 1).status();
  const auto canceled = client->cancel_application(number);
  REQUIRE(canceled.ok());
  const msg::BudgetApplication end = ended();
  if (canceled->state == "running") {  // it had not ended before
    CHECK(second.code() == StatusCode::kConflict);
    CHECK_THAT(second.message(), Catch::Contains("wait for its end, or cancel it"));
    CHECK(other.code() == StatusCode::kConflict);
    CHECK(end.state == "canceled");
    CHECK(end.trimmed_segments < 60);
    CHECK(client->budgets({})->effective.keep == Budget::ratio(0.6).value());
  }
  REQUIRE(client->set_budget(to(0.4)).ok());
  const msg::BudgetApplication rest = ended();
  CHECK(rest.state == "done");
  CHECK(rest.number > end.number);
  CHECK(rest.trimmed_segments == 60);
}

TEST_CASE_METHOD(Applications, "trims end when the budgets change, and a count ends for them",
                 "[integration]") {
  put_many(60);
  msg::SetBudget count = to(0.05);
  count.dry_run = true;
  // Each count ends the one before it, also one that still waits for its predecessor.
  for (int i = 0; i < 50; ++i) REQUIRE(client->set_budget(count).ok());
  REQUIRE(client->set_budget(to(0.1)).ok());  // no conflict with a count
  msg::SetBudget corrected;
  corrected.keep = Budget::ratio(0.6).value();
  REQUIRE(client->set_budget(corrected).ok());
  const msg::BudgetApplication end = ended();
  CHECK_FALSE(end.dry_run);
  CHECK(end.revision == 1);
  if (end.state != "done") {  // it had not ended before
    CHECK(end.state == "canceled");
    CHECK(end.code == "canceled");
    CHECK_THAT(end.error, Catch::Contains("the budgets are at revision 2 now, not 1"));
    CHECK(end.trimmed_segments < 60);
  }
  CHECK(client->cancel_application(end.number).ok());  // it has ended
  CHECK(ctl({"budget", "application"}).out.find("of revision 1: ") != std::string::npos);
}

TEST_CASE_METHOD(Applications, "what no trim can take is refused, and nothing is set",
                 "[integration]") {
  msg::SetBudget change;
  change.apply_to_stored = true;
  change.recipe = "knorm";
  CHECK(client->set_budget(change).status().code() == StatusCode::kInvalidArgument);
  change.keep = Budget::loss(0.05).value();
  CHECK(client->set_budget(change).status().code() == StatusCode::kInvalidArgument);
  CHECK(client->budget_revisions({})->newest == 0);
  // A dry run tells all the rest, and counts nothing.
  change.dry_run = true;
  for (const Budget& keep : {Budget::all(), Budget::loss(0.05).value()}) {
    change.keep = keep;
    const auto told = client->set_budget(change);
    REQUIRE(told.ok());
    CHECK(told->application == 0);
  }
  CHECK(client->application()->number == 0);
}

}  // namespace
