// The applications that all nodes of a cluster begin. A count, which is a dry run, neither ends nor
// hides the trims of its tenant.
#include "cachesvc/pipeline/budget_applications.h"

#include <catch2/catch.hpp>

#include "tests/unit/pipeline/served_fixture.h"

namespace precis::testing {
namespace {

struct FollowedFixture : ServedFixture {
  TrimPath trim_path{{loop, reads, storage, cold, memory, *catalog, hot_tier, metrics}};
  BudgetApplications applications{{loop, storage, trim_path, *catalog, f.clock, log, {}}};
  const Budget keep = Budget::entries(30);

  FollowedFixture() {
    msg::SetBudget set;
    set.keep = keep;
    REQUIRE(catalog->set_budget(f.tenant, set).ok());
  }
  // Begins at once, and goes on in run_all().
  void follow(std::uint64_t number, bool dry_run, std::uint64_t asked_unix_ms = 1) {
    BudgetsToApply budgets;
    budgets.changes.emplace_back().after.keep = dry_run ? Budget::entries(10) : keep;
    applications.follow(Owner(f.tenant), budgets, {number, 1, dry_run, asked_unix_ms});
  }
  void run_all() {
    while (applications.busy()) {
      loop.post([&] { loop.stop(); });
      loop.run();
    }
  }
  msg::BudgetApplication state() const { return applications.state(f.tenant); }
  std::optional<Budget> trimmed() const {
    return catalog->segment(f.tenant, segment.row.id).value()->trimmed;
  }
};

TEST_CASE_METHOD(FollowedFixture, "a count beside trims does not hide them, and waits for them",
                 "[unit][pipeline]") {
  follow(5, false);
  follow(6, true);
  CHECK(state().number == 5);
  CHECK(state().state == "running");
  CHECK(applications.check_free(f.tenant).code() == StatusCode::kConflict);
  run_all();
  CHECK(trimmed() == keep);
  CHECK(applications.check_free(f.tenant).ok());
  CHECK(state().number == 6);
  CHECK(state().state == "done");
  CHECK(state().trimmed_segments == 1);  // it counts what the trims have left
}

TEST_CASE_METHOD(FollowedFixture, "an end of trims ends them also after a count began",
                 "[unit][pipeline]") {
  follow(5, false);
  follow(6, true);
  SECTION("as all nodes") { applications.end(f.tenant, /*dry_run=*/false); }
  SECTION("by their number") { CHECK(applications.cancel(f.tenant, 5).ok()); }
  SECTION("with the count") { CHECK(applications.cancel(f.tenant, 0).ok()); }
  CHECK(applications.check_free(f.tenant).ok());
  run_all();
  CHECK_FALSE(trimmed());
  follow(5, false);  // as when shards are loaded
  run_all();
  CHECK_FALSE(trimmed());
}

TEST_CASE_METHOD(FollowedFixture, "an end of a count leaves the trims", "[unit][pipeline]") {
  follow(5, false);
  follow(6, true);
  applications.end(f.tenant, /*dry_run=*/true);
  run_all();
  CHECK(trimmed() == keep);
  CHECK(state().number == 6);
  CHECK(state().state == "canceled");
}

TEST_CASE_METHOD(FollowedFixture, "an end of trims ends those for the same revision before them",
                 "[unit][pipeline]") {
  follow(5, false);
  follow(6, false);
  applications.end(f.tenant, /*dry_run=*/false);
  run_all();
  CHECK_FALSE(trimmed());
}

TEST_CASE_METHOD(FollowedFixture, "trims that are applied again leave the count that runs",
                 "[unit][pipeline]") {
  follow(5, false);
  run_all();
  follow(6, true);
  follow(5, false);
  run_all();
  CHECK(state().number == 6);
  CHECK(state().state == "done");
  CHECK(state().trimmed_segments == 1);
}

TEST_CASE_METHOD(FollowedFixture, "another application of the same number is begun",
                 "[unit][pipeline]") {
  follow(5, false);
  applications.end(f.tenant, /*dry_run=*/false);
  run_all();
  REQUIRE_FALSE(trimmed());
  follow(5, false, 2);  // etcd was restored meanwhile
  run_all();
  CHECK(trimmed() == keep);
}

}  // namespace
}  // namespace precis::testing
