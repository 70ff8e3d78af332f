// Budgets of sessions: the narrowest scope, which ends with the session.
#include <catch2/catch.hpp>
#include <string>

#include "precis/limits.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

constexpr std::uint32_t kTenth = 100'000;

struct SessionBudgets : CatalogFixture {
  SessionBudgets() { open("chat"); }

  void open(const std::string& name, std::optional<std::uint64_t> ttl_s = {}) {
    REQUIRE(catalog->open_session(tenant, {name, ttl_s, {}}).ok());
  }
  Result<msg::BudgetRevision> set(const msg::BudgetScope& scope, std::uint32_t tenths) {
    msg::SetBudget request;
    request.scope = scope;
    request.keep = Budget::ratio_ppm(tenths * kTenth);
    return catalog->set_budget(tenant, request);
  }
  Result<msg::BudgetRevision> unset(const msg::BudgetScope& scope) {
    msg::SetBudget request{scope, "", Budget::all(), Budget::all()};
    return catalog->set_budget(tenant, request);
  }
  msg::BudgetScope chat() const { return {{}, "chat"}; }
  msg::BudgetScope of_model() const { return {fingerprint, {}}; }
  msg::Budgets budgets(const msg::BudgetScope& scope) const {
    return catalog->budgets(tenant, scope, {});
  }
  std::uint32_t tenths(const msg::BudgetScope& scope) const {
    return static_cast<std::uint32_t>(budgets(scope).effective.keep->value / kTenth);
  }
};

}  // namespace

TEST_CASE_METHOD(SessionBudgets, "a session's budget is narrower than its model's",
                 "[unit][catalog]") {
  REQUIRE(set({}, 4).ok());
  REQUIRE(set(chat(), 7).ok());
  REQUIRE(set(of_model(), 5).ok());
  const msg::BudgetScope both{fingerprint, "chat"};
  CHECK(tenths(both) == 7);
  const msg::Budgets shown = budgets(both);
  REQUIRE(shown.layers.size() == 5);
  CHECK(shown.layers[3].scope == "model model");
  CHECK(shown.layers[4].scope == "session chat");
  CHECK(shown.layers[3].session.empty());
  CHECK(shown.layers[4].session == "chat");
  CHECK(shown.effective.session == "chat");
  CHECK(budgets(of_model()).effective.session.empty());
  CHECK(shown.sessions.empty());
  CHECK(tenths(of_model()) == 5);
  CHECK(tenths({}) == 4);
  REQUIRE(budgets({}).sessions.size() == 1);
  CHECK(budgets({}).sessions[0].scope == "session chat");
  CHECK(budgets({}).sessions[0].session == "chat");
  CHECK(budgets({}).sessions[0].keep == Budget::ratio_ppm(7 * kTenth));

  // A session without a turn belongs to no model.
  CHECK(budgets(chat()).layers.size() == 4);
  const NewSegment a = put(tokens(6));
  REQUIRE(catalog->advance_session(tenant, {"chat", a.row.id}).ok());
  CHECK(budgets(chat()).layers == shown.layers);
  crash_and_reopen();
  CHECK(budgets(chat()).layers == shown.layers);
  REQUIRE(unset(chat()).ok());
  CHECK(tenths(both) == 5);
  CHECK(stored_rows(Table::kBudgets) == 2);
}

TEST_CASE_METHOD(SessionBudgets, "a session's scope stands alone, and the session must exist",
                 "[unit][catalog]") {
  const Status both = set({fingerprint, "chat"}, 3).status();
  CHECK(both.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(both.message(), Catch::Contains("for a model or for session 'chat', not for both"));
  const Status none = set({{}, "other"}, 3).status();
  CHECK(none.code() == StatusCode::kNotFound);
  CHECK_THAT(none.message(), Catch::Contains("session 'other' does not exist"));
  msg::SetBudget above{chat(), {}, Budget::ratio_ppm(5 * kTenth), Budget::ratio_ppm(4 * kTenth)};
  CHECK_THAT(catalog->set_budget(tenant, above).status().message(),
             Catch::Contains("above the limit 0.4 of the same scope"));
  CHECK(stored_rows(Table::kBudgets) == 0);
  CHECK(catalog->budget_revisions(tenant, {}).newest == 0);
}

TEST_CASE_METHOD(SessionBudgets, "a recipe with a profile is set for a session of its model",
                 "[unit][catalog]") {
  REQUIRE(catalog->add_profile(tenant, profile_json(profile("learnt"))).ok());
  const msg::SetBudget learnt{chat(), "lukv(keydiff)", {}};
  const Status early = catalog->set_budget(tenant, learnt).status();
  CHECK(early.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(early.message(), Catch::Contains("has no turn yet"));
  const NewSegment a = put(tokens(6));
  REQUIRE(catalog->advance_session(tenant, {"chat", a.row.id}).ok());
  CHECK(catalog->set_budget(tenant, learnt).ok());
  CHECK(catalog->set_budget(tenant, {chat(), "lukv(knorm)", {}}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE_METHOD(SessionBudgets, "a session's budget goes with the session, however it goes",
                 "[unit][catalog]") {
  REQUIRE(set(chat(), 7).ok());
  SECTION("it is removed") { REQUIRE(catalog->remove_session(tenant, "chat").ok()); }
  SECTION("it expires") {
    open("chat", 1);
    clock.advance_ms(1000);
    put(tokens(6));  // any change takes it along
  }
  SECTION("it expires, and is opened anew") {
    open("chat", 1);
    clock.advance_ms(1000);
  }
  SECTION("it expires, and the service starts again") {
    open("chat", 1);
    clock.advance_ms(1000);
    crash_and_reopen();
  }
  open("chat");
  CHECK(budgets(chat()).effective.keep == kBuiltInKeep);
  CHECK(budgets({}).sessions.empty());
  CHECK(stored_rows(Table::kBudgets) == 0);
  crash_and_reopen();
  CHECK(budgets(chat()).effective.keep == kBuiltInKeep);
  CHECK(set(chat(), 5).value().number == 2);
}

TEST_CASE_METHOD(SessionBudgets, "a fork has no budget of its own", "[unit][catalog]") {
  REQUIRE(set(chat(), 7).ok());
  REQUIRE(catalog->fork_session(tenant, {"chat", "helper"}).ok());
  CHECK_FALSE(budgets({{}, "helper"}).layers.back().keep);
  CHECK(tenths(chat()) == 7);
}

TEST_CASE_METHOD(SessionBudgets, "a crash that loses a session leaves no budget to the next one",
                 "[unit][catalog]") {
  const NewSegment a = put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  open("brief");
  REQUIRE(catalog->remove_session(tenant, "brief").ok());
  open("brief");
  REQUIRE(catalog->advance_session(tenant, {"brief", a.row.id}).ok());
  REQUIRE(catalog->fork_session(tenant, {"brief", "lost"}).ok());  // as volatile as its tip
  REQUIRE(set({{}, "lost"}, 7).ok());
  crash_and_reopen();
  REQUIRE_FALSE(catalog->session(tenant, "lost").ok());
  CHECK(budgets({}).sessions.empty());
  open("lost");
  CHECK_FALSE(budgets({{}, "lost"}).layers.back().keep);
  CHECK(stored_rows(Table::kBudgets) == 0);
}

TEST_CASE_METHOD(SessionBudgets, "a rollback restores what sessions set, and skips those gone",
                 "[unit][catalog]") {
  open("other");
  REQUIRE(set(chat(), 7).ok());
  REQUIRE(set({{}, "other"}, 6).ok());
  REQUIRE(set({}, 4).ok());
  REQUIRE(set(chat(), 2).ok());
  REQUIRE(set({{}, "other"}, 3).ok());
  REQUIRE(catalog->remove_session(tenant, "other").ok());
  const auto back = catalog->roll_back_budget(tenant, {2});
  REQUIRE(back.ok());
  REQUIRE(back->changes.size() == 2);
  CHECK(back->changes[0].scope == msg::BudgetScope());
  CHECK(back->changes[1].scope == chat());
  CHECK(tenths(chat()) == 7);
  REQUIRE(catalog->roll_back_budget(tenant, {0}).ok());
  CHECK(budgets(chat()).effective.keep == kBuiltInKeep);
  crash_and_reopen();
  CHECK(stored_rows(Table::kBudgets) == 1);  // the tenant's own, which sets nothing
  CHECK(catalog->budget_revisions(tenant, {}).rows[0].changes.size() == 1);
}

TEST_CASE_METHOD(SessionBudgets, "only so many sessions of a tenant have a budget of their own",
                 "[unit][catalog]") {
  const auto named = [](std::size_t number) {
    return msg::BudgetScope{{}, "s" + std::to_string(number)};
  };
  for (std::size_t number = 0; number <= limits::kSessionBudgetsMax; ++number) {
    open(named(number).session);
    const auto made = set(named(number), 5);
    const bool fits = number < limits::kSessionBudgetsMax;
    if (made.ok() != fits) FAIL("budget " << number << ": " << made.status().to_string());
  }
  CHECK(set(named(limits::kSessionBudgetsMax), 5).status().code() == StatusCode::kOutOfSpace);
  CHECK(set(named(0), 4).ok());
  CHECK(budgets({}).sessions.size() == 100);
  REQUIRE(unset(named(0)).ok());
  CHECK(set(named(limits::kSessionBudgetsMax), 5).ok());
  CHECK(catalog->remove_budgets(tenant).ok());
  CHECK(stored_rows(Table::kBudgets) == 0);
}

TEST_CASE_METHOD(SessionBudgets, "a rollback of more scopes than a revision holds is refused",
                 "[unit][catalog]") {
  const auto set_one = [&](std::size_t number) {
    const std::string name = "s" + std::to_string(number);
    open(name);
    const auto made = set({{}, name}, 5);
    if (!made.ok()) FAIL("budget " << number << ": " << made.status().to_string());
  };
  for (std::size_t number = 0; number < limits::kListPageRowsMax; ++number) set_one(number);
  const std::uint64_t all = limits::kListPageRowsMax;  // the revision with all of them
  REQUIRE(catalog->roll_back_budget(tenant, {0}).ok());
  set_one(all);
  for (const bool dry_run : {true, false}) {
    msg::RollBackBudget request{all};
    request.dry_run = dry_run;
    const Status refused = catalog->roll_back_budget(tenant, request).status();
    CHECK(refused.code() == StatusCode::kOutOfSpace);
    CHECK_THAT(refused.message(), Catch::Contains("changes 1001 scopes") &&
                                      Catch::Contains("remove the budgets of sessions first"));
  }
  CHECK(catalog->budget_revisions(tenant, {}).newest == all + 2);
  CHECK(stored_rows(Table::kBudgets) == 1);
  crash_and_reopen();
  CHECK(catalog->budget_revisions(tenant, {}).newest == all + 2);
  REQUIRE(unset({{}, "s" + std::to_string(all)}).ok());
  CHECK(catalog->roll_back_budget(tenant, {all}).value().changes.size() == all);
}
