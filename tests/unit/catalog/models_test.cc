#include <catch2/catch.hpp>

#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("a registered model is found by its fingerprint, within its tenant", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(*f.catalog->model(f.tenant, f.fingerprint) == f.model);
  CHECK(f.catalog->model("foreign", f.fingerprint).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->model(f.tenant, Digest{}).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->models("foreign").empty());
}

TEST_CASE("registering an equal spec again is fine and counts its segments", "[unit][catalog]") {
  CatalogFixture f;
  f.put(tokens(6));
  const auto again = f.catalog->register_model(f.tenant, f.model);
  REQUIRE(again.ok());
  CHECK(again->fingerprint == f.fingerprint);
  CHECK(again->segments == 1);
  CHECK(f.catalog->models(f.tenant).size() == 1);
}

TEST_CASE("a spec with another revision is another model", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec other = f.model;
  other.revision = "2";
  const auto row = f.catalog->register_model(f.tenant, other);
  REQUIRE(row.ok());
  CHECK(row->fingerprint != f.fingerprint);
  CHECK(row->segments == 0);
  CHECK(f.catalog->models(f.tenant).size() == 2);
  CHECK(f.catalog->totals().models == 2);
}

TEST_CASE("an invalid spec is refused and not kept", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec bad = f.model;
  bad.num_layers = 0;
  CHECK(f.catalog->register_model(f.tenant, bad).status().code() == StatusCode::kInvalidArgument);
  CHECK(f.catalog->models(f.tenant).size() == 1);
}

TEST_CASE("a model that the store refuses is not registered", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec other = f.model;
  other.revision = "2";
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(f.catalog->register_model(f.tenant, other).status().code() == StatusCode::kUnavailable);
  CHECK(f.catalog->models(f.tenant).size() == 1);
}
