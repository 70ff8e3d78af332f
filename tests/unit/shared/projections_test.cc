// Output projections of nodes that share a storage.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/projection_row.h"
#include "cachesvc/shared/tiered_store.h"
#include "precis/block_digest.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/shared/memory_tier.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kWidth = 3;
// More layers than one change of settings has rows.
constexpr std::uint32_t kLayers = kSettingsPerChange + 20;

ModelSpec deep_model() {
  ModelSpec model = CatalogFixture().model;
  model.name = "deep";
  model.num_layers = kLayers;
  return model;
}

struct Weights {
  StoredProjection row;
  std::vector<std::byte> weights, grams;
};

Weights weights_of(const ModelSpec& model, std::uint32_t layer, int fill) {
  Weights w;
  w.weights.assign(std::size_t{model.num_q_heads} * model.head_dim * kWidth * sizeof(float),
                   std::byte(fill));
  w.grams.assign(grams_bytes(model), std::byte(fill));
  w.row = {"tenant",       model_fingerprint(model), layer,          kWidth,
           Dtype::kF32,    w.weights.size(),         w.grams.size(), sha256(w.weights),
           sha256(w.grams)};
  return w;
}

class Member {
 public:
  explicit Member(MemoryTier& tier)
      : uploads_(tier, clock_, std::make_unique<ThreadExecutor>("copies", 1), 1 << 20),
        store_(make_tiered_store(machine_.open(), tier, uploads_)),
        catalog(Catalog::open(*store_, clock_, ~0ull, /*in_shards=*/true).value()) {}

  Status add(const Weights& w) {
    PRECIS_TRY(catalog->share_projection(w.row, w.weights, w.grams));
    return catalog->add_projection(w.row, w.weights, w.grams);
  }
  // The error if the member does not have these bytes.
  std::string read_error(const Weights& w) {
    const auto row = catalog->projection("tenant", w.row.model, w.row.layer);
    if (!row.ok()) return row.status().to_string();
    if (**row != w.row) return "another row";
    for (const auto part : {Catalog::ProjectionPart::kWeights, Catalog::ProjectionPart::kGrams}) {
      const auto& want = part == Catalog::ProjectionPart::kGrams ? w.grams : w.weights;
      std::vector<std::byte> got(want.size());
      const Status read = catalog->read_projection(**row, part, got);
      if (!read.ok()) return read.to_string();
      if (got != want) return "other bytes";
    }
    return "";
  }

 private:
  SystemClock clock_;
  MemoryMachine machine_;
  Uploads uploads_;
  const std::unique_ptr<Store> store_;

 public:
  const std::unique_ptr<Catalog> catalog;
};

// Members that take each other's changes at once.
struct Fleet {
  MemoryTier tier;
  std::vector<std::unique_ptr<Member>> members;
  std::size_t changes = 0;

  Fleet() {
    add_member();
    add_member();
  }
  Member& add_member() {
    std::vector<SettingRow> settings;
    if (!members.empty()) settings = members.front()->catalog->settings().value();
    Member& member = *members.emplace_back(std::make_unique<Member>(tier));
    REQUIRE(member.catalog->take_settings(std::move(settings))->left_out.empty());
    member.catalog->agree_by([this](const SettingsCatalog::Plan& plan) -> Status {
      PRECIS_ASSIGN(const auto rows, plan());
      if (rows.empty()) return {};
      REQUIRE(rows.size() <= kSettingsPerChange);
      ++changes;
      for (const auto& each : members) {
        REQUIRE(each->catalog->take_settings(rows)->left_out.empty());
      }
      return {};
    });
    return member;
  }
};

}  // namespace

TEST_CASE("projections that one node is sent are there for all, also for those that join later",
          "[unit][shared]") {
  Fleet fleet;
  Member &a = *fleet.members[0], &b = *fleet.members[1];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const Weights first = weights_of(model, 0, 1), second = weights_of(model, 1, 2);
  REQUIRE(a.add(first).ok());
  REQUIRE(b.add(second).ok());
  Member& late = fleet.add_member();
  for (const auto& member : fleet.members) {
    CHECK(member->read_error(first) == "");
    CHECK(member->read_error(second) == "");
  }
  fleet.tier.fail(true);  // by now they have copies of their own
  CHECK(late.read_error(first) == "");
  CHECK(b.read_error(first) == "");
}

TEST_CASE("a projection is added once, and other Gram matrices of its weights replace the former",
          "[unit][shared]") {
  Fleet fleet;
  Member &a = *fleet.members[0], &b = *fleet.members[1];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const Weights w = weights_of(model, 0, 1);
  REQUIRE(a.add(w).ok());
  const std::size_t changes = fleet.changes, objects = fleet.tier.objects();
  Weights elsewhere = w;
  elsewhere.grams.front() = std::byte{9};
  elsewhere.row.grams = sha256(elsewhere.grams);
  CHECK(b.add(w).ok());
  CHECK(fleet.changes == changes);
  CHECK(fleet.tier.objects() == objects);
  CHECK(b.read_error(w) == "");
  CHECK(b.add(elsewhere).ok());
  CHECK(a.read_error(elsewhere) == "");
  CHECK(b.read_error(elsewhere) == "");
  CHECK(a.read_error(w) == "another row");
}

TEST_CASE("weights that are refused leave nothing in the shared storage", "[unit][shared]") {
  Fleet fleet;
  Member &a = *fleet.members[0], &b = *fleet.members[1];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const Weights first = weights_of(model, 0, 1), other = weights_of(model, 0, 2);
  // Both members have written their bytes before a row names the bytes of either.
  REQUIRE(a.catalog->share_projection(first.row, first.weights, first.grams).ok());
  REQUIRE(b.catalog->share_projection(other.row, other.weights, other.grams).ok());
  REQUIRE(a.catalog->add_projection(first.row, first.weights, first.grams).ok());
  CHECK(b.catalog->add_projection(other.row, other.weights, other.grams).code() ==
        StatusCode::kInvalidArgument);
  CHECK(fleet.tier.objects() == 2);
  CHECK(b.add(other).code() == StatusCode::kInvalidArgument);
  CHECK(fleet.tier.objects() == 2);
  CHECK(b.read_error(first) == "");
}

TEST_CASE("the same weights mend a projection that the shared storage has lost", "[unit][shared]") {
  Fleet fleet;
  Member &a = *fleet.members[0], &b = *fleet.members[1];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const Weights w = weights_of(model, 0, 1);
  fleet.tier.fail(true);
  CHECK(a.add(w).code() == StatusCode::kUnavailable);
  CHECK(a.catalog->projection("tenant", w.row.model, 0).status().code() == StatusCode::kNotFound);
  fleet.tier.fail(false);
  REQUIRE(a.add(w).ok());
  fleet.tier.fail(true);
  CHECK_THAT(b.read_error(w), Catch::Contains("unavailable"));
  fleet.tier.fail(false);
  fleet.tier.lose_objects();
  CHECK_THAT(b.read_error(w), Catch::Contains("push it again"));
  REQUIRE(a.add(w).ok());
  CHECK(b.read_error(w) == "");
}

TEST_CASE("a removed model takes its projections out of the shared storage", "[unit][shared]") {
  Fleet fleet;
  Member &a = *fleet.members[0], &b = *fleet.members[1];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    REQUIRE(a.add(weights_of(model, layer, static_cast<int>(layer))).ok());
  }
  CHECK(b.read_error(weights_of(model, kLayers - 1, kLayers - 1)) == "");
  REQUIRE(b.catalog->remove_model("tenant", model_fingerprint(model)).ok());
  CHECK(fleet.tier.objects() == 0);
  CHECK(a.catalog->settings()->empty());
  // A model that is registered again has no projections, so other weights are taken.
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const Weights other = weights_of(model, 0, 77);
  REQUIRE(b.add(other).ok());
  CHECK(a.read_error(other) == "");
}

TEST_CASE("a projection's row that does not fit its model is left out", "[unit][shared]") {
  Fleet fleet;
  Member& a = *fleet.members[0];
  const ModelSpec model = deep_model();
  REQUIRE(a.catalog->register_model("tenant", model).ok());
  const auto left_out = [&](const StoredProjection& row, std::uint32_t layer_in_key) {
    const std::string key = shared_projection_key("tenant", model_fingerprint(model), layer_in_key);
    const auto taken = a.catalog->take_settings({{Table::kMeta, key, encode(row)}});
    return taken.ok() && taken->left_out.size() == 1;
  };
  const StoredProjection good = weights_of(model, 1, 1).row;
  CHECK_FALSE(left_out(good, 1));
  CHECK(left_out(good, 2));
  StoredProjection bad = good;
  bad.layer = kLayers;
  CHECK(left_out(bad, kLayers));
  bad = good;
  ++bad.weights_bytes;
  CHECK(left_out(bad, 1));
  bad = good;
  --bad.grams_bytes;
  CHECK(left_out(bad, 1));
  bad = good;
  ++bad.width;
  CHECK(left_out(bad, 1));
}
