// Stored tenants: what a change leaves, also after a crash.
#include <catch2/catch.hpp>

#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

StoredTenant tenant_row(const std::string& name) {
  return {name, "reader", 2, "salt", {{"token of " + name, 1}}, 3, 4, 5, 6, 7};
}

Catalog::TenantChange to(const std::optional<StoredTenant>& row) {
  return [row](std::optional<StoredTenant>& present) {
    present = row;
    return Status();
  };
}

TEST_CASE("stored tenants survive a crash, and those that were removed stay so",
          "[unit][catalog]") {
  CatalogFixture f;
  for (const char* name : {"blue", "red"}) {
    REQUIRE(f.catalog->change_tenant(name, to(tenant_row(name))).ok());
  }
  REQUIRE(f.catalog->change_tenant("gone", to(tenant_row("gone"))).ok());
  REQUIRE(f.catalog->change_tenant("gone", to({})).ok());
  f.crash_and_reopen();
  CHECK(f.catalog->stored_tenants() == std::vector{tenant_row("blue"), tenant_row("red")});
  CHECK(f.catalog->totals().quarantined_rows == 0);
}

TEST_CASE("a change of a tenant sees its row, and an error of it changes nothing",
          "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->change_tenant("red", to(tenant_row("red"))).ok());
  const Status refused =
      f.catalog->change_tenant("red", [](std::optional<StoredTenant>& row) -> Status {
        CHECK(row == tenant_row("red"));
        row.reset();
        return Status::conflict("no");
      });
  CHECK(refused.code() == StatusCode::kConflict);
  CHECK(f.catalog->stored_tenants().size() == 1);
  f.reopen();
  CHECK(f.catalog->stored_tenants().size() == 1);
}

TEST_CASE("a tenant whose row is damaged is not there, and can be added again", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->change_tenant("red", to(tenant_row("red"))).ok());
  auto bytes = encode(tenant_row("red"));
  bytes.back() ^= std::byte{1};
  REQUIRE(f.store.write({{{Table::kMeta, stored_tenant_key("red"), bytes}}, {}}, Durability::kWal)
              .ok());
  f.reopen();
  CHECK(f.catalog->stored_tenants().empty());
  CHECK(f.catalog->totals().quarantined_rows == 1);
  REQUIRE(f.catalog->change_tenant("red", to(tenant_row("red"))).ok());
  CHECK(f.catalog->totals().quarantined_rows == 0);
}

TEST_CASE("the number of stored tenants is bounded", "[unit][catalog]") {
  CatalogFixture f;
  for (std::size_t t = 0; t < limits::kStoredTenantsMax; ++t) {
    const std::string name = std::to_string(t);
    REQUIRE(f.catalog->change_tenant(name, to(tenant_row(name))).ok());
  }
  CHECK(f.catalog->change_tenant("more", to(tenant_row("more"))).code() == StatusCode::kOutOfSpace);
  CHECK(f.catalog->change_tenant("1", to(tenant_row("1"))).ok());  // it is there
}

}  // namespace
