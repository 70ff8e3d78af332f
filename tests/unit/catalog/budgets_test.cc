#include "cachesvc/catalog/budgets.h"

#include <catch2/catch.hpp>

#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

const BudgetDefaults kSilent{};

msg::Budgets global(const CatalogFixture& f, const BudgetDefaults& configured = kSilent) {
  return f.catalog->budgets(f.tenant, {}, configured);
}
msg::Budgets of_model(const CatalogFixture& f, const BudgetDefaults& configured = kSilent) {
  return f.catalog->budgets(f.tenant, {f.fingerprint}, configured);
}

}  // namespace

TEST_CASE("where nobody says anything the built-in recipe and keep hold", "[unit][catalog]") {
  CatalogFixture f;
  const msg::Budgets budgets = of_model(f);
  REQUIRE(budgets.layers.size() == 4);
  CHECK(budgets.layers[0].scope == "built-in");
  CHECK(budgets.layers[1].scope == "config");
  CHECK(budgets.layers[2].scope == "global");
  CHECK(budgets.layers[3].scope == "model model");
  CHECK(budgets.effective.recipe == kBuiltInRecipe);
  CHECK(budgets.effective.keep == kBuiltInKeep);
  CHECK(budgets.effective.version == 0);
  CHECK(parse_recipe(kBuiltInRecipe).ok());
  CHECK(global(f).layers.size() == 3);
}

TEST_CASE("the narrower layer wins, for recipe and keep apart", "[unit][catalog]") {
  CatalogFixture f;
  const BudgetDefaults configured{{"", "knorm", Budget::ratio_ppm(500'000), 0, 0}, {}};
  CHECK(of_model(f, configured).effective.recipe == "knorm");
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "keydiff", {}}).ok());
  CHECK(of_model(f, configured).effective.recipe == "keydiff");
  CHECK(of_model(f, configured).effective.keep == Budget::ratio_ppm(500'000));
  REQUIRE(f.catalog->set_budget(f.tenant, {{f.fingerprint}, {}, Budget::entries(64)}).ok());
  CHECK(of_model(f, configured).effective.recipe == "keydiff");
  CHECK(of_model(f, configured).effective.keep == Budget::entries(64));
  CHECK(global(f, configured).effective.keep == Budget::ratio_ppm(500'000));
}

TEST_CASE("a profile brings its recipe to its model, between the configuration and what was set",
          "[unit][catalog]") {
  CatalogFixture f;
  const BudgetDefaults configured{{"", "knorm", {}, 0, 0}, "lukv(keydiff, min_entries=7)"};
  CHECK(of_model(f, configured).effective.recipe == "knorm");
  REQUIRE(f.catalog->add_profile(f.tenant, profile_json(f.profile("learnt"))).ok());
  const msg::Budgets budgets = of_model(f, configured);
  REQUIRE(budgets.layers.size() == 5);
  CHECK(budgets.layers[2].scope == "profile");
  CHECK(budgets.effective.recipe == configured.profile_recipe);
  CHECK(global(f, configured).effective.recipe == "knorm");
  CHECK(of_model(f).effective.recipe == kBuiltInRecipe);
  const BudgetDefaults of_other{{"", "knorm", {}, 0, 0}, "lukv(kvdiff)"};
  CHECK(of_model(f, of_other).effective.recipe == "knorm");
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "keydiff", {}}).ok());
  CHECK(of_model(f, configured).effective.recipe == "keydiff");
}

TEST_CASE("a recipe that needs a profile is set for a model that has one, and for nobody else",
          "[unit][catalog]") {
  CatalogFixture f;
  const msg::SetBudget for_all{{}, "lukv(keydiff)", {}}, named{{}, "lukv(profile=learnt)", {}};
  const msg::SetBudget for_model{{f.fingerprint}, "lukv(keydiff)", {}};
  CHECK(f.catalog->set_budget(f.tenant, for_all).status().code() == StatusCode::kInvalidArgument);
  const Status none = f.catalog->set_budget(f.tenant, for_model).status();
  CHECK(none.code() == StatusCode::kNotFound);
  CHECK_THAT(none.message(), Catch::Contains("has no profile over the scores of lukv(keydiff); ") &&
                                 Catch::Contains("profile build --recipe 'lukv(keydiff)'") &&
                                 Catch::Contains("profile add FILE") && !Catch::Contains("{"));
  CHECK(of_model(f).effective.version == 0);

  REQUIRE(f.catalog->add_profile(f.tenant, profile_json(f.profile("learnt"))).ok());
  CHECK(f.catalog->set_budget(f.tenant, for_model).ok());
  const Status other =
      f.catalog->set_budget(f.tenant, {{f.fingerprint}, "lukv(knorm)", {}}).status();
  CHECK(other.code() == StatusCode::kNotFound);
  CHECK(of_model(f).effective.recipe == "lukv(keydiff)");
  // A profile belongs to one model, so a recipe that needs one cannot be set for all models.
  CHECK(f.catalog->set_budget(f.tenant, for_all).status().code() == StatusCode::kInvalidArgument);
  CHECK(f.catalog->set_budget(f.tenant, named).status().code() == StatusCode::kInvalidArgument);

  CHECK(f.catalog->set_budget(f.tenant, {{f.fingerprint}, {}, Budget::entries(64)}).ok());
}

TEST_CASE("a profile that a set recipe needs is not removed", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->add_profile(f.tenant, profile_json(f.profile("learnt"))).ok());
  REQUIRE(f.catalog->set_budget(f.tenant, {{f.fingerprint}, "lukv(keydiff)", {}}).ok());
  const Status used = f.catalog->remove_profile(f.tenant, f.fingerprint, "learnt");
  CHECK(used.code() == StatusCode::kConflict);
  CHECK_THAT(used.message(), Catch::Contains("which is set for model '") &&
                                 Catch::Contains("set another recipe there first"));
  // Another profile fits, too.
  REQUIRE(f.catalog->add_profile(f.tenant, profile_json(f.profile("other"))).ok());
  CHECK(f.catalog->remove_profile(f.tenant, f.fingerprint, "learnt").ok());
  CHECK(f.catalog->remove_profile(f.tenant, f.fingerprint, "other").code() ==
        StatusCode::kConflict);
  REQUIRE(f.catalog->set_budget(f.tenant, {{f.fingerprint}, "", {}}).ok());
  CHECK(f.catalog->remove_profile(f.tenant, f.fingerprint, "other").ok());
}

TEST_CASE("an empty recipe and a keep of all take a layer's word back", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "keydiff", Budget::entries(64)}).ok());
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "", {}}).ok());
  CHECK(global(f).effective.recipe == kBuiltInRecipe);
  CHECK(global(f).effective.keep == Budget::entries(64));
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, {}, Budget::all()}).ok());
  CHECK(global(f).effective.keep == kBuiltInKeep);
}

TEST_CASE("each change of a tenant's budgets has the next version", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "keydiff", {}}).ok());
  CHECK(global(f).effective.version == 1);
  f.clock.advance_ms(5);
  REQUIRE(f.catalog->set_budget(f.tenant, {{f.fingerprint}, "knorm", {}}).ok());
  CHECK(of_model(f).effective.version == 2);
  CHECK(of_model(f).layers[3].version == 2);
  CHECK(of_model(f).layers[3].set_unix_ms == f.clock.unix_ms());
  CHECK(of_model(f).layers[2].version == 1);
  CHECK(global(f).effective.version == 1);
  REQUIRE(f.catalog->set_budget("other", {{}, "knorm", {}}).ok());
  CHECK(f.catalog->budgets("other", {}, kSilent).effective.version == 1);
  CHECK(global(f).effective.recipe == "keydiff");
}

TEST_CASE("a recipe that does not parse, a keep that cannot be, or no change at all is refused",
          "[unit][catalog]") {
  CatalogFixture f;
  const auto refused = [&](const msg::SetBudget& request) {
    CHECK(f.catalog->set_budget(f.tenant, request).status().code() == StatusCode::kInvalidArgument);
    CHECK(global(f).effective.version == 0);
  };
  refused({{}, "no_such_preset", {}});
  refused({{}, std::string(1 << 20, 'x'), {}});
  refused({{}, {}, Budget::ratio_ppm(0)});
  refused({{}, {}, Budget::ratio_ppm(1'000'001)});
  refused({{}, {}, Budget{Budget::Kind::kScoreMass, 500'000 | (1'000'001ull << 32)}});
  refused({{}, {}, Budget{Budget::Kind::kScoreMass, 500'000}});
  refused({{}, {}, Budget{Budget::Kind::kLoss, 0}});
  refused({{}, {}, Budget::entries(0)});
  refused({{}, {}, Budget::bytes(0)});
  refused({{}, {}, {}});
  CHECK(f.catalog->set_budget(f.tenant, {{}, {}, Budget::ratio_ppm(1'000'000)}).ok());
}

TEST_CASE("a budget for a model that is not registered is kNotFound", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(f.catalog->set_budget(f.tenant, {{Digest{}}, "keydiff", {}}).status().code() ==
        StatusCode::kNotFound);
  CHECK(f.catalog->set_budget("foreign", {{f.fingerprint}, "keydiff", {}}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("budgets are the same after a crash, versions go on", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "keydiff", Budget::bytes(1 << 20)}).ok());
  REQUIRE(f.catalog->set_budget(f.tenant, {{f.fingerprint}, "knorm", {}}).ok());
  const msg::Budgets before = of_model(f);
  f.crash_and_reopen();
  CHECK(of_model(f) == before);
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "knorm", {}}).ok());
  CHECK(global(f).effective.version == 3);
}

TEST_CASE("a change of a budget that the store refuses is not made", "[unit][catalog]") {
  CatalogFixture f;
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(f.catalog->set_budget(f.tenant, {{}, "keydiff", {}}).status().code() ==
        StatusCode::kUnavailable);
  CHECK(global(f).effective.recipe == kBuiltInRecipe);
}
