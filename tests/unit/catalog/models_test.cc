#include <catch2/catch.hpp>
#include <memory>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/segment_tree.h"
#include "precis/block_digest.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("a registered model is found by its fingerprint, within its tenant", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(*f.catalog->model(f.tenant, f.fingerprint) == f.model);
  CHECK(f.catalog->model("foreign", f.fingerprint).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->model(f.tenant, Digest{}).status().code() == StatusCode::kNotFound);
  CHECK(models_of(*f.catalog, "foreign").empty());
}

TEST_CASE("registering an equal spec again is fine and counts its segments", "[unit][catalog]") {
  CatalogFixture f;
  f.put(tokens(6));
  const auto again = f.catalog->register_model(f.tenant, f.model);
  REQUIRE(again.ok());
  CHECK(again->fingerprint == f.fingerprint);
  CHECK(again->segments == 1);
  CHECK(models_of(*f.catalog, f.tenant).size() == 1);
}

TEST_CASE("a spec with another revision is another model", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec other = f.model;
  other.revision = "2";
  const auto row = f.catalog->register_model(f.tenant, other);
  REQUIRE(row.ok());
  CHECK(row->fingerprint != f.fingerprint);
  CHECK(row->segments == 0);
  CHECK(models_of(*f.catalog, f.tenant).size() == 2);
  CHECK(f.catalog->totals().models == 2);
}

TEST_CASE("an invalid spec is refused and not kept", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec bad = f.model;
  bad.num_layers = 0;
  CHECK(f.catalog->register_model(f.tenant, bad).status().code() == StatusCode::kInvalidArgument);
  CHECK(models_of(*f.catalog, f.tenant).size() == 1);
}

TEST_CASE("a spec whose RoPE scaling nobody knows is refused and not kept", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec other = f.model;
  other.rope_scaling = R"({"factor":4.0,"rope_type":"yarm"})";
  const Status refused = f.catalog->register_model(f.tenant, other).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(refused.message(), Catch::Contains("rope_type 'yarm'"));
  CHECK(models_of(*f.catalog, f.tenant).size() == 1);
  other.rope_scaling = R"({"factor":4.0,"rope_type":"yarn"})";
  CHECK(f.catalog->register_model(f.tenant, other).ok());
}

TEST_CASE("a new model is looked up only for the segments that wait for it", "[unit][catalog]") {
  constexpr TokenId kRoots = 50;
  CatalogFixture f;
  bool is_known = false;
  std::uint64_t asked = 0;
  SegmentTree tree([&](std::string_view, const Digest&) {
    ++asked;
    return is_known ? &f.model : nullptr;
  });
  std::vector<SegmentId> roots;
  for (TokenId i = 0; i < kRoots; ++i) {  // as rows from disk whose model's row is damaged
    const NewSegment root = f.segment(tokens(6, 1000 * i)),
                     child = f.segment(tokens(9, 1000 * i), &root);
    for (const NewSegment* each : {&child, &root}) {
      tree.put(std::make_shared<const SegmentRow>(each->row), Durability::kFsync, 0);
    }
    roots.push_back(root.row.id);
  }
  CHECK(tree.in_service() == 0);
  asked = 0;
  tree.model_added("foreign", f.fingerprint);
  tree.model_added(f.tenant, Digest{});
  CHECK(asked == 0);
  is_known = true;
  tree.erase(roots.back());
  tree.model_added(f.tenant, f.fingerprint);
  CHECK(tree.in_service() == 2 * (kRoots - 1));
  asked = 0;
  tree.model_added(f.tenant, f.fingerprint);
  CHECK(asked == 0);
}

TEST_CASE("a model that the store refuses is not registered", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec other = f.model;
  other.revision = "2";
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(f.catalog->register_model(f.tenant, other).status().code() == StatusCode::kUnavailable);
  CHECK(models_of(*f.catalog, f.tenant).size() == 1);
}

namespace {

struct Weights {
  StoredProjection row;
  std::vector<std::byte> weights, grams;
};

Weights weights_of(const CatalogFixture& f, std::uint32_t layer, std::byte fill) {
  Weights w;
  w.weights.assign(96, fill);
  w.grams.assign(32, fill);
  w.row = {f.tenant,       f.fingerprint,     layer,          3, Dtype::kF32, w.weights.size(),
           w.grams.size(), sha256(w.weights), sha256(w.grams)};
  return w;
}

Status add(CatalogFixture& f, const Weights& w) {
  return f.catalog->add_projection(w.row, w.weights, w.grams);
}

Status read_back(CatalogFixture& f, const Weights& w, Catalog::ProjectionPart part) {
  const auto& want = part == Catalog::ProjectionPart::kGrams ? w.grams : w.weights;
  std::vector<std::byte> got(want.size());
  PRECIS_TRY(f.catalog->read_projection(w.row, part, got));
  CHECK(got == want);
  return {};
}

}  // namespace

TEST_CASE("a layer's projection is kept through a crash, for good", "[unit][catalog]") {
  CatalogFixture f;
  const Weights w = weights_of(f, 1, std::byte{7});
  REQUIRE(add(f, w).ok());
  f.crash_and_reopen();
  const auto row = f.catalog->projection(f.tenant, f.fingerprint, 1);
  REQUIRE(row.ok());
  CHECK(**row == w.row);
  CHECK(read_back(f, w, Catalog::ProjectionPart::kWeights).ok());
  CHECK(read_back(f, w, Catalog::ProjectionPart::kGrams).ok());
  CHECK(models_of(*f.catalog, f.tenant).front().projections == 1);

  CHECK(add(f, w).ok());
  // Another machine's Gram matrices differ in their last bits and replace these.
  Weights elsewhere = w;
  elsewhere.grams.front() = std::byte{9};
  elsewhere.row.grams = sha256(elsewhere.grams);
  CHECK(add(f, elsewhere).ok());
  CHECK(read_back(f, elsewhere, Catalog::ProjectionPart::kGrams).ok());
  CHECK(add(f, weights_of(f, 1, std::byte{8})).code() == StatusCode::kInvalidArgument);
  CHECK(read_back(f, w, Catalog::ProjectionPart::kWeights).ok());
  CHECK(f.catalog->projection(f.tenant, f.fingerprint, 0).status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->projection("foreign", f.fingerprint, 1).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a damaged projection is not served, and the same weights mend it", "[unit][catalog]") {
  CatalogFixture f;
  const Weights w = weights_of(f, 0, std::byte{7});
  REQUIRE(add(f, w).ok());
  const std::string key = payload_key(projection_id(f.tenant, f.fingerprint, /*is_gram=*/false), 0);
  std::vector<std::byte> bad = w.weights;
  bad[50] ^= std::byte{1};
  REQUIRE(f.store.write({{{Table::kPayload, key, bad}}, {}}, Durability::kWal).ok());
  CHECK(read_back(f, w, Catalog::ProjectionPart::kWeights).code() == StatusCode::kCorruption);
  REQUIRE(f.store.write({{}, {{Table::kPayload, key}}}, Durability::kWal).ok());
  CHECK(read_back(f, w, Catalog::ProjectionPart::kWeights).code() == StatusCode::kCorruption);
  CHECK(read_back(f, w, Catalog::ProjectionPart::kGrams).ok());
  REQUIRE(add(f, w).ok());
  CHECK(read_back(f, w, Catalog::ProjectionPart::kWeights).ok());
}

TEST_CASE("a projection that the store refuses, or whose model is unknown, is not kept",
          "[unit][catalog]") {
  CatalogFixture f;
  Weights w = weights_of(f, 0, std::byte{7});
  f.store.fail_next_write(Status::out_of_space("full"));
  CHECK(add(f, w).code() == StatusCode::kOutOfSpace);
  CHECK(models_of(*f.catalog, f.tenant).front().projections == 0);
  w.row.model = Digest{};
  CHECK(add(f, w).code() == StatusCode::kNotFound);
}

TEST_CASE("a model without segments is removed with all that belongs to it, for good",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment segment = f.put(tokens(6));
  const auto row = models_of(*f.catalog, f.tenant).front();
  CHECK(row.stored_bytes == segment.row.stored_bytes);
  CHECK(row.original_bytes == segment.row.original_bytes);
  REQUIRE(add(f, weights_of(f, 1, std::byte{7})).ok());
  REQUIRE(f.catalog->add_profile(f.tenant, profile_json(f.profile("one"))).ok());
  msg::SetBudget budget{{f.fingerprint}, "knorm", {}};
  REQUIRE(f.catalog->set_budget(f.tenant, budget).ok());

  const Status refused = f.catalog->remove_model(f.tenant, f.fingerprint);
  CHECK(refused.code() == StatusCode::kConflict);
  CHECK_THAT(refused.message(), Catch::Contains("has 1 segment"));
  REQUIRE(f.catalog->remove(f.tenant, segment.row.id, false, nullptr).ok());
  CHECK(f.catalog->remove_model("foreign", f.fingerprint).code() == StatusCode::kNotFound);
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(f.catalog->remove_model(f.tenant, f.fingerprint).code() == StatusCode::kUnavailable);
  CHECK(models_of(*f.catalog, f.tenant).size() == 1);

  const NewSegment late = f.segment(tokens(6));  // of a put in progress
  REQUIRE(f.catalog->remove_model(f.tenant, f.fingerprint).ok());
  CHECK(f.commit(late).code() == StatusCode::kNotFound);
  f.crash_and_reopen();
  CHECK(models_of(*f.catalog, f.tenant).empty());
  CHECK(f.store.stats().payload_bytes == 0);
  // The model starts anew: nothing of the removed one applies to it.
  REQUIRE(f.catalog->register_model(f.tenant, f.model).ok());
  const auto again = models_of(*f.catalog, f.tenant).front();
  CHECK(again.projections == 0);
  CHECK(again.stored_bytes == 0);
  CHECK(f.catalog->profiles(f.tenant, {}).empty());
  CHECK(f.catalog->budgets(f.tenant, {f.fingerprint}, {}).layers.back().recipe.empty());
}
