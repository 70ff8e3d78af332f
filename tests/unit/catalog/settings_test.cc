// Settings that are the same in several catalogs, as at the nodes of a cluster.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cachesvc/catalog/catalog_keys.h"
#include "precis/block_digest.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

using Rows = std::vector<SettingRow>;

// Catalogs that agree on their settings through a list of all changes.
struct Fleet {
  struct Member : CatalogFixture {
    std::size_t taken = 0;
    std::vector<SettingsCatalog::Taken::LeftOut> left_out;
    int plans = 0;
  };
  std::vector<Rows> changes;
  std::array<Member, 3> members;

  Fleet() {
    for (Member& member : members) {  // the fixture has registered its model alone
      REQUIRE(member.catalog->remove_model(member.tenant, member.fingerprint).ok());
      join(member);
    }
    REQUIRE(members[0].catalog->register_model(members[0].tenant, members[0].model).ok());
  }
  void join(Member& member) {
    member.catalog->agree_by([this, &member](const SettingsCatalog::Plan& plan) {
      for (;;) {
        auto rows = plan();
        ++member.plans;
        if (rows.ok() && rows->empty()) return Status();
        if (member.taken < changes.size()) {
          follow(member);
          continue;
        }
        PRECIS_TRY(rows.status());
        changes.push_back(*rows);
        follow(member);
        return Status();
      }
    });
  }
  void follow(Member& member) {
    for (; member.taken < changes.size(); ++member.taken) {
      const auto taken = member.catalog->take_settings(changes[member.taken]);
      REQUIRE(taken.ok());
      member.left_out = taken->left_out;
    }
  }
  void follow_all() {
    for (Member& member : members) follow(member);
  }
};

std::map<std::pair<Table, std::string>, std::vector<std::byte>> settings_of(Catalog& catalog) {
  std::map<std::pair<Table, std::string>, std::vector<std::byte>> found;
  std::vector<SettingRow> rows = catalog.settings().value();
  for (SettingRow& row : rows) {
    found[{row.table, row.key}] = std::move(*row.value);
  }
  return found;
}

Status set_keep(Fleet::Member& member, const msg::BudgetScope& scope, std::uint32_t ppm,
                std::optional<std::uint64_t> if_revision = {}) {
  msg::SetBudget request;
  request.scope = scope;
  request.keep = Budget::ratio_ppm(ppm);
  request.if_revision = if_revision;
  return member.catalog->set_budget(member.tenant, request).status();
}

std::uint64_t keep_of(const Fleet::Member& member, const msg::BudgetScope& scope) {
  return member.catalog->budgets(member.tenant, scope, {}).effective.keep->value;
}

Catalog::TenantChange adds(const std::string& name) {
  return [name](std::optional<StoredTenant>& row) -> Status {
    if (row) return Status::conflict("it is there");
    row = StoredTenant{name, "reader", 2, "salt", {{"token of " + name, 1}}, 3, 4, 5, 6, 7};
    return {};
  };
}

}  // namespace

TEST_CASE("a change of one member holds at all that follow", "[unit][catalog]") {
  Fleet fleet;
  auto& [a, b, c] = fleet.members;
  fleet.follow_all();
  CHECK(c.catalog->model(c.tenant, c.fingerprint).ok());
  const msg::BudgetScope of_model{a.fingerprint, {}};
  REQUIRE(set_keep(a, of_model, 400'000).ok());
  REQUIRE(b.catalog->add_profile(b.tenant, profile_json(b.profile("p"))).ok());
  REQUIRE(c.catalog->change_tenant("blue", adds("blue")).ok());
  fleet.follow_all();
  for (const auto& member : fleet.members) {
    CHECK(keep_of(member, of_model) == 400'000);
    CHECK(member.catalog->profiles(member.tenant, std::nullopt).size() == 1);
    CHECK(member.catalog->stored_tenants().size() == 1);
    CHECK(settings_of(*member.catalog) == settings_of(*a.catalog));
  }
}

TEST_CASE("a change is planned over what the others have changed before", "[unit][catalog]") {
  Fleet fleet;
  auto& [a, b, c] = fleet.members;
  fleet.follow_all();
  REQUIRE(set_keep(a, {}, 400'000).ok());
  CHECK(set_keep(b, {}, 500'000, /*if_revision=*/0).code() == StatusCode::kConflict);
  REQUIRE(set_keep(b, {}, 500'000, /*if_revision=*/1).ok());
  CHECK(keep_of(b, {}) == 500'000);
  REQUIRE(a.catalog->change_tenant("blue", adds("blue")).ok());
  CHECK(c.catalog->change_tenant("blue", adds("blue")).code() == StatusCode::kConflict);
  // The registration of a model that is already there changes nothing, whatever the others do.
  const std::size_t changes = fleet.changes.size();
  REQUIRE(c.catalog->register_model(c.tenant, c.model).ok());
  CHECK(fleet.changes.size() == changes);
}

TEST_CASE("members that change settings at random have the same ones",
          "[unit][catalog][property]") {
  std::mt19937 random(GENERATE(1u, 2u, 3u, 4u));
  Fleet fleet;
  fleet.follow_all();
  for (auto& member : fleet.members) {
    REQUIRE(member.catalog->open_session(member.tenant, {"chat", {}, {}}).ok());
  }
  const auto one_of = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  const auto& first = fleet.members[0];
  const std::vector<msg::BudgetScope> scopes = {{}, {first.fingerprint, {}}, {{}, "chat"}};
  std::size_t made = 0;
  for (int step = 0; step < 300; ++step) {
    Fleet::Member& member = fleet.members[one_of(3)];
    Catalog& catalog = *member.catalog;
    const std::string name = "n" + std::to_string(one_of(4));
    const auto change = [&]() -> Status {
      switch (one_of(7)) {
        case 0:
        case 1: return set_keep(member, scopes[one_of(3)], 1000 * (1 + one_of(900)));
        case 2: {
          msg::RollBackBudget request;
          request.revision = one_of(20);
          return catalog.roll_back_budget(member.tenant, request).status();
        }
        case 3:
          return catalog.add_profile(member.tenant, profile_json(member.profile(name))).status();
        case 4: return catalog.remove_profile(member.tenant, member.fingerprint, name);
        case 5: return catalog.change_tenant(name, adds(name));
        default:
          return catalog.change_tenant(name, [](std::optional<StoredTenant>& row) -> Status {
            if (!row) return Status::not_found("no");
            row.reset();
            return {};
          });
      }
    };
    made += change().ok() ? 1 : 0;
    if (one_of(3) == 0) fleet.follow(fleet.members[one_of(3)]);
    member.clock.advance_ms(1);
  }
  CHECK(made > 100);
  fleet.follow_all();
  for (auto& member : fleet.members) {
    CHECK(member.left_out.empty());
    CHECK(settings_of(*member.catalog) == settings_of(*first.catalog));
    for (const msg::BudgetScope& scope : scopes)
      CHECK(keep_of(member, scope) == keep_of(first, scope));
    const auto revisions = [](const Fleet::Member& of) {
      return of.catalog->budget_revisions(of.tenant, {}).rows;
    };
    CHECK(revisions(member) == revisions(first));
    // Memory has what the store has.
    const auto tenants = member.catalog->stored_tenants();
    const auto profiles = member.catalog->profiles(member.tenant, std::nullopt).size();
    const auto before = revisions(member);
    member.reopen();
    CHECK(member.catalog->stored_tenants() == tenants);
    CHECK(member.catalog->profiles(member.tenant, std::nullopt).size() == profiles);
    CHECK(revisions(member) == before);
  }
}

TEST_CASE("a model that one removes while another stores segments of it comes back",
          "[unit][catalog]") {
  Fleet fleet;
  auto& [a, b, c] = fleet.members;
  fleet.follow_all();
  const NewSegment stored = b.put(tokens(8));
  const msg::BudgetScope of_model{a.fingerprint, {}};
  REQUIRE(set_keep(a, of_model, 400'000).ok());
  REQUIRE(a.catalog->add_profile(a.tenant, profile_json(a.profile("p"))).ok());
  fleet.follow_all();
  REQUIRE(a.catalog->remove_model(a.tenant, a.fingerprint).ok());
  fleet.follow(b);
  CHECK(b.matched(tokens(8)) == 8);
  const Rows own = b.catalog->own_changes();
  CHECK(own.size() == 3);
  fleet.changes.push_back(own);
  fleet.follow_all();
  for (const auto& member : fleet.members)
    CHECK(member.catalog->model(member.tenant, a.fingerprint).ok());
  CHECK(b.catalog->own_changes().empty());
  for (const auto& member : fleet.members) {
    CHECK(keep_of(member, of_model) == 400'000);
    CHECK(member.catalog->profiles(member.tenant, std::nullopt).size() == 1);
    CHECK(settings_of(*member.catalog) == settings_of(*a.catalog));
  }

  // If the segments of the model are removed meanwhile, the model stays removed.
  REQUIRE(a.catalog->remove_model(a.tenant, a.fingerprint).ok());
  fleet.follow(b);
  REQUIRE(b.catalog->remove(b.tenant, stored.row.id, false, nullptr).ok());
  fleet.changes.push_back(b.catalog->own_changes());
  fleet.follow_all();
  for (const auto& member : fleet.members) {
    CHECK_FALSE(member.catalog->model(member.tenant, a.fingerprint).ok());
  }
  CHECK(b.catalog->own_changes().empty());
  CHECK(settings_of(*a.catalog).empty() == settings_of(*b.catalog).empty());
}

TEST_CASE("the budget of an ended session ends at all members, and is none of a new one",
          "[unit][catalog]") {
  Fleet fleet;
  auto& [a, b, c] = fleet.members;
  fleet.follow_all();
  const msg::BudgetScope chat{{}, "chat"};
  const auto open = [&](Fleet::Member& member, std::optional<std::uint64_t> ttl = {}) {
    REQUIRE(member.catalog->open_session(member.tenant, {"chat", ttl, {}}).ok());
  };
  open(a);
  REQUIRE(set_keep(a, chat, 700'000).ok());
  fleet.follow_all();
  CHECK(keep_of(b, chat) == 700'000);
  CHECK(b.catalog->sessions_with_budgets(b.tenant).size() == 1);
  SECTION("when it is removed") {
    REQUIRE(a.catalog->remove_session(a.tenant, "chat").ok());
    fleet.changes.push_back(a.catalog->own_changes());
    fleet.follow_all();
    CHECK(b.catalog->sessions_with_budgets(b.tenant).empty());
    CHECK(a.catalog->own_changes().empty());
  }
  SECTION("when it has expired") {
    open(a, 1);
    a.clock.advance_ms(2000);
    REQUIRE(a.catalog->open_session(a.tenant, {"other", {}, {}}).ok());  // erases expired ones
    fleet.changes.push_back(a.catalog->own_changes());
    fleet.follow_all();
    CHECK(b.catalog->sessions_with_budgets(b.tenant).empty());
  }
  SECTION("when another of its name begins at once") {
    REQUIRE(a.catalog->remove_session(a.tenant, "chat").ok());
    open(a);
    CHECK(keep_of(a, chat) != 700'000);
    fleet.follow_all();
    CHECK(keep_of(b, chat) != 700'000);
    CHECK(a.catalog->own_changes().empty());
  }
}

TEST_CASE("a setting that is damaged, or under another's key, is left out and told",
          "[unit][catalog]") {
  CatalogFixture f;
  const auto take = [&](SettingRow row) {
    return f.catalog->take_settings({std::move(row)}).value();
  };
  StoredTenant tenant{"blue", "reader", 2, "salt", {{"token", 1}}, 3, 4, 5, 6, 7};
  auto damaged = encode(tenant);
  damaged.back() ^= std::byte{1};
  CHECK(take({Table::kMeta, stored_tenant_key("blue"), damaged}).left_out.size() == 1);
  CHECK(take({Table::kMeta, stored_tenant_key("red"), encode(tenant)}).left_out.size() == 1);
  CHECK(take({Table::kMeta, "catalog.format", std::vector<std::byte>(4)}).left_out.size() == 1);
  CHECK(take({Table::kSegments, "segment", std::vector<std::byte>(4)}).left_out.size() == 1);
  CHECK(take({Table::kProfiles, "short", std::nullopt}).left_out.size() == 1);
  CHECK(take({Table::kModels, "short", std::nullopt}).left_out.size() == 1);
  CHECK(take({Table::kBudgets, std::string(4, '\xff'), std::nullopt}).left_out.size() == 1);
  CHECK(f.catalog->stored_tenants().empty());
  CHECK(take({Table::kMeta, stored_tenant_key("blue"), encode(tenant)}).tenants);
  CHECK(f.catalog->stored_tenants().size() == 1);
  // A good row beside a bad one is taken.
  const auto both = f.catalog->take_settings(
      {{Table::kMeta, stored_tenant_key("blue"), {}}, {Table::kModels, "short", std::nullopt}});
  CHECK(both.value().left_out.size() == 1);
  CHECK(f.catalog->stored_tenants().empty());
}
