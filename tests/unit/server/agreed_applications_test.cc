#include "cachesvc/server/agreed_applications.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

BudgetsToApply some_budgets() {
  BudgetsToApply budgets;
  msg::BudgetChange& change = budgets.changes.emplace_back();
  change.scope.session = "chat";
  change.before.keep = Budget::ratio_ppm(800'000);
  change.after.keep = Budget::ratio_ppm(300'000);
  change.after.limit = Budget::ratio_ppm(400'000);
  budgets.stored_by_ms = 1234;
  return budgets;
}

TEST_CASE("budgets to apply are the same after they were a row", "[unit][server]") {
  BudgetsToApply budgets = some_budgets();
  SECTION("to the keeps") {}
  SECTION("to the limits") { budgets.to_limit = true; }
  SECTION("of a rollback") { budgets.smaller_only = true; }
  SECTION("of a rollback to no keep") {
    budgets.smaller_only = true;
    budgets.changes.front().after.keep.reset();
  }
  const BudgetsToApply back = AgreedApplications::from_row(AgreedApplications::to_row(budgets));
  // A change to the limits does not need the keeps.
  if (budgets.to_limit) budgets.changes.front().after.keep.reset();
  CHECK(back.changes == budgets.changes);
  CHECK(back.to_limit == budgets.to_limit);
  CHECK(back.smaller_only == budgets.smaller_only);
  CHECK(back.stored_by_ms == 1234);
}

}  // namespace
}  // namespace precis
