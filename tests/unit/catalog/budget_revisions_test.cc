// The revisions of a tenant's budgets: what they say, what a rollback restores, and how long they
// are kept.
#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

constexpr std::uint32_t kTenth = 100'000;

msg::SetBudget keep(std::uint32_t tenths, std::optional<Digest> model = {}) {
  msg::SetBudget request;
  request.scope.model = model;
  request.keep = Budget::ratio_ppm(tenths * kTenth);
  return request;
}
msg::SetBudget recipe(const std::string& text) {
  msg::SetBudget request;
  request.recipe = text;
  return request;
}
msg::SetBudget limit(std::uint32_t tenths) {
  msg::SetBudget request;
  request.limit = Budget::ratio_ppm(tenths * kTenth);
  return request;
}
msg::RollBackBudget to(std::uint64_t revision) {
  msg::RollBackBudget request;
  request.revision = revision;
  return request;
}

struct RevisionsFixture : CatalogFixture {
  const BudgetDefaults silent;
  std::uint64_t set(const msg::SetBudget& request) {
    const auto made = catalog->set_budget(tenant, request);
    INFO(made.status().to_string());
    REQUIRE(made.ok());
    return made->number;
  }
  msg::Budgets now() const { return catalog->budgets(tenant, {fingerprint}, silent); }
  msg::BudgetRevisions log(std::uint64_t before = 0, std::uint32_t most = 100) const {
    msg::ListBudgetRevisions request;
    request.before = before;
    request.limit = most;
    return catalog->budget_revisions(tenant, request);
  }
  // The values of all layers, without time and revision.
  std::vector<msg::BudgetValues> values() const {
    std::vector<msg::BudgetValues> all;
    for (const msg::BudgetRow& row : now().layers) all.push_back({row.recipe, row.keep, row.limit});
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(RevisionsFixture, "a revision tells who changed what, when and why",
                 "[unit][catalog]") {
  CHECK(log() == msg::BudgetRevisions{});
  msg::SetBudget request = recipe("keydiff");
  request.user = "ada";
  request.comment = "cheaper scores";
  clock.advance_ms(5);
  CHECK(set(request) == 1);
  CHECK(set(keep(2, fingerprint)) == 2);
  const msg::BudgetRevisions page = log();
  CHECK(page.newest == 2);
  CHECK(page.oldest == 1);
  REQUIRE(page.rows.size() == 2);
  CHECK(page.rows[0].number == 2);
  CHECK(page.rows[0].changes.front().scope.model == fingerprint);
  const msg::BudgetRevision& first = page.rows[1];
  CHECK(first.user == "ada");
  CHECK(first.comment == "cheaper scores");
  CHECK(first.set_unix_ms == clock.unix_ms());
  REQUIRE(first.changes.size() == 1);
  CHECK_FALSE(first.changes[0].scope.model);
  CHECK(first.changes[0].before == msg::BudgetValues{});
  CHECK(first.changes[0].after == msg::BudgetValues{"keydiff", {}, {}});
  CHECK(log(2).rows.front().number == 1);
  CHECK(log(0, 1).rows.size() == 1);
  crash_and_reopen();
  CHECK(log() == page);
}

TEST_CASE_METHOD(RevisionsFixture, "a tenant's budgets and revisions can be removed together",
                 "[unit][catalog]") {
  const msg::Budgets before = now();
  set(keep(2));
  set(keep(1, fingerprint));
  msg::SetBudget others = keep(3);
  REQUIRE(catalog->set_budget("other", others).ok());
  CHECK(catalog->remove_budgets(tenant).value() == 4);
  CHECK(catalog->remove_budgets(tenant).value() == 0);
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(now() == before);
    CHECK(log() == msg::BudgetRevisions{});
    CHECK(catalog->budget_revisions("other", {}).newest == 1);
    crash_and_reopen();
  }
}

TEST_CASE_METHOD(RevisionsFixture, "a change to what is set already makes no revision",
                 "[unit][catalog]") {
  set(keep(2));
  const auto again = catalog->set_budget(tenant, keep(2));
  REQUIRE(again.ok());
  CHECK(again->changes.empty());
  CHECK(log().newest == 1);
  CHECK(now().effective.version == 1);
}

TEST_CASE_METHOD(RevisionsFixture, "a rollback restores every scope, and can be rolled back",
                 "[unit][catalog]") {
  set(keep(5));
  set(recipe("keydiff"));
  const auto then = values();
  set(keep(2, fingerprint));
  set(limit(6));
  set(recipe("knorm"));
  const auto later = values();

  msg::RollBackBudget dry = to(2);
  dry.dry_run = true;
  CHECK(catalog->roll_back_budget(tenant, dry).value().changes.size() == 2);
  CHECK(values() == later);
  CHECK(log().newest == 5);

  const auto back = catalog->roll_back_budget(tenant, to(2));
  REQUIRE(back.ok());
  CHECK(back->number == 6);
  CHECK(back->rollback_to == 2);
  CHECK(values() == then);
  crash_and_reopen();
  CHECK(values() == then);
  REQUIRE(catalog->roll_back_budget(tenant, to(5)).ok());
  CHECK(values() == later);
  REQUIRE(catalog->roll_back_budget(tenant, to(0)).ok());
  CHECK(now().effective.recipe == kBuiltInRecipe);
  CHECK_FALSE(now().effective.limit);
}

TEST_CASE_METHOD(RevisionsFixture, "revisions are compared in both directions", "[unit][catalog]") {
  set(keep(5));
  set(recipe("keydiff"));
  set(keep(2, fingerprint));
  set(keep(5, fingerprint));
  set(keep(4));
  using Changes = std::vector<msg::BudgetChange>;
  const msg::BudgetScope global, of_one{fingerprint, {}};
  const auto compared = [&](std::optional<std::uint64_t> from, std::optional<std::uint64_t> to) {
    return catalog->compare_budgets(tenant, {from, to}).value();
  };
  const auto tenths = [](std::uint32_t count) { return Budget::ratio_ppm(count * kTenth); };
  const msg::BudgetValues first{"", tenths(5), {}}, last{"keydiff", tenths(4), {}};
  const msg::BudgetValues of_model{"", tenths(5), {}};
  CHECK(compared(1, 5) ==
        msg::BudgetChanges{1, 5, {{global, first, last}, {of_one, {}, of_model}}});
  CHECK(compared(5, 1).changes == Changes{{global, last, first}, {of_one, of_model, {}}});
  CHECK(compared(4, {}) == compared(4, 5));
  CHECK(compared(3, 3).changes.empty());
  CHECK(compared({}, {}).changes == Changes{{global, {}, last}, {of_one, {}, of_model}});
  CHECK(compared({}, 1).changes == Changes{{global, {}, first}});
  CHECK(compared({}, 0).changes.empty());
  crash_and_reopen();
  CHECK(compared({}, {}).changes == compared(0, 5).changes);
  CHECK(catalog->compare_budgets(tenant, {1, 6}).status().code() == StatusCode::kNotFound);
  CHECK(catalog->compare_budgets(tenant, {6, {}}).status().code() == StatusCode::kNotFound);
  REQUIRE(catalog->remove_model(tenant, fingerprint).ok());
  CHECK(compared({}, {}).changes == Changes{{global, {}, last}});
}

TEST_CASE_METHOD(RevisionsFixture, "a rollback leaves out a model that is gone",
                 "[unit][catalog]") {
  set(keep(5));
  set(keep(3, fingerprint));
  set(keep(2));
  set(keep(4, fingerprint));
  REQUIRE(catalog->remove_model(tenant, fingerprint).ok());
  const auto back = catalog->roll_back_budget(tenant, to(2));
  REQUIRE(back.ok());
  REQUIRE(back->changes.size() == 1);
  CHECK(back->changes.front().scope == msg::BudgetScope());
}

TEST_CASE_METHOD(RevisionsFixture, "a rollback that can't be done changes nothing",
                 "[unit][catalog]") {
  CHECK(catalog->roll_back_budget(tenant, to(0)).status().code() == StatusCode::kConflict);
  set(keep(5));
  CHECK(catalog->roll_back_budget(tenant, to(1)).status().code() == StatusCode::kConflict);
  CHECK(catalog->roll_back_budget(tenant, to(9)).status().code() == StatusCode::kNotFound);
  // A rollback to revision 2 would bring back a recipe whose profile is gone.
  REQUIRE(catalog->add_profile(tenant, profile_json(profile("learnt"))).ok());
  msg::SetBudget request = recipe("lukv(keydiff)");
  request.scope.model = fingerprint;
  set(request);
  request.recipe = "";
  set(request);
  REQUIRE(catalog->remove_profile(tenant, fingerprint, "learnt").ok());
  const auto before = values();
  CHECK(catalog->roll_back_budget(tenant, to(2)).status().code() == StatusCode::kNotFound);
  store.fail_next_write(Status::unavailable("gone"));
  CHECK(catalog->roll_back_budget(tenant, to(1)).status().ok());  // nothing differs from it
  CHECK(catalog->roll_back_budget(tenant, to(0)).status().code() == StatusCode::kUnavailable);
  CHECK(values() == before);
  CHECK(log().newest == 3);
}

TEST_CASE_METHOD(RevisionsFixture, "of two administrators the second is told of the first",
                 "[unit][catalog]") {
  set(keep(5));
  msg::SetBudget first = keep(4), second = keep(3);
  first.if_revision = second.if_revision = 1;
  set(first);
  const auto refused = catalog->set_budget(tenant, second).status();
  CHECK(refused.code() == StatusCode::kConflict);
  CHECK_THAT(refused.message(), Catch::Contains("at revision 2, not 1"));
  msg::RollBackBudget back = to(0);
  back.if_revision = 1;
  CHECK(catalog->roll_back_budget(tenant, back).status().code() == StatusCode::kConflict);
  CHECK(now().effective.keep == Budget::ratio_ppm(4 * kTenth));
}

TEST_CASE_METHOD(RevisionsFixture, "the oldest revisions are forgotten, on disk too",
                 "[unit][catalog]") {
  const std::uint64_t count = limits::kBudgetRevisionsMax + 20;
  for (std::uint64_t n = 1; n <= count; ++n) set(keep(n % 2 == 0 ? 2 : 3));
  CHECK(log().oldest == 21);
  CHECK(log().newest == count);
  CHECK(catalog->roll_back_budget(tenant, to(19)).status().code() == StatusCode::kNotFound);
  crash_and_reopen();
  CHECK(log().oldest == 21);
  CHECK(catalog->roll_back_budget(tenant, to(20)).status().ok());
}

TEST_CASE_METHOD(RevisionsFixture, "revisions with long recipes are bounded by their bytes",
                 "[unit][catalog]") {
  const std::string padding(limits::kRecipeBytesMax - 16, ' ');
  for (int n = 0; n < 600; ++n) set(recipe((n % 2 == 0 ? "knorm" : "keydiff") + padding));
  const msg::BudgetRevisions page = log();
  CHECK(page.newest == 600);
  CHECK((page.newest - page.oldest) * 2 * padding.size() < limits::kBudgetRevisionBytesMax);
  CHECK(page.oldest < 500);      // not only the last few
  CHECK(page.rows.size() < 20);  // a page is bounded, too
  CHECK(log(page.rows.back().number).rows.front().number == page.rows.back().number - 1);
  const std::uint64_t oldest = page.oldest;
  crash_and_reopen();
  CHECK(log().oldest == oldest);
}

TEST_CASE_METHOD(RevisionsFixture, "a limit is set per scope, and no keep of a scope is above it",
                 "[unit][catalog]") {
  set(limit(4));
  CHECK(now().effective.limit == Budget::ratio_ppm(4 * kTenth));
  const auto above = catalog->set_budget(tenant, keep(5)).status();
  CHECK(above.code() == StatusCode::kConflict);
  CHECK_THAT(above.message(), Catch::Contains("keep 0.5 is above the limit 0.4"));
  msg::SetBudget both = keep(5);
  both.limit = Budget::ratio_ppm(4 * kTenth);
  CHECK(catalog->set_budget(tenant, both).status().code() == StatusCode::kInvalidArgument);
  msg::SetBudget loss;
  loss.limit = Budget::loss(0.05).value();
  CHECK(catalog->set_budget(tenant, loss).status().code() == StatusCode::kInvalidArgument);
  set(keep(5, fingerprint));  // another scope
  msg::SetBudget unset;
  unset.limit = Budget::all();
  set(unset);
  CHECK_FALSE(now().effective.limit);
  CHECK(log().newest == 3);
}

TEST_CASE_METHOD(RevisionsFixture, "a keep and a limit in different units are not compared",
                 "[unit][catalog]") {
  set(limit(5));
  msg::SetBudget loss;
  loss.keep = Budget::loss(0.05).value();
  CHECK(catalog->set_budget(tenant, loss).ok());
  msg::SetBudget entries;
  entries.limit = Budget::entries(10);
  CHECK(catalog->set_budget(tenant, entries).ok());
}
