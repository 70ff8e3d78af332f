// Budgets are changed live and apply to the next put.
#include <catch2/catch.hpp>

#include "precis/recipe.h"
#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250614;

struct InForce {
  std::string recipe;
  std::uint64_t entries;
  bool operator==(const InForce&) const = default;
};

// The recipe and entries that the next put of 200 tokens gets with these options.
InForce in_force(Client& client, const Model& model, const PutOptions& options = {}) {
  static std::mt19937 random(kSeed);
  const Put put = client.begin_put(model, random_tokens(random, 200), options).value();
  return {put.begun().recipe, put.begun().entries};
}

InForce expected(const Model& model, const std::string& recipe, const Budget& keep) {
  const Recipe parsed = parse_recipe(recipe).value();
  return {canonical_recipe(parsed), budget_entries(parsed, model.spec, 200, keep).value()};
}

msg::SetBudget change(std::optional<Digest> model, std::optional<std::string> recipe,
                      std::optional<Budget> keep) {
  return {{model}, std::move(recipe), keep};
}

TEST_CASE("request over model over global over the configured default, from the next put on",
          "[integration]") {
  const TempDir dir;
  auto service = std::make_unique<ServiceProcess>(dir);
  auto client = service->connect();
  const Model model = client->register_model(tiny_model()).value();
  ModelSpec second_spec = tiny_model();
  second_spec.name = "test/second";
  const Model second = client->register_model(second_spec).value();
  const InForce configured = in_force(*client, model);

  const auto global = expected(model, "knorm", Budget::ratio_ppm(400'000));
  REQUIRE(client->set_budget(change({}, "knorm", Budget::ratio_ppm(400'000))).ok());
  CHECK(in_force(*client, model) == global);
  CHECK(in_force(*client, second) == global);
  // Another connection sees it too.
  CHECK(in_force(*service->connect(), model) == global);

  REQUIRE(client->set_budget(change(model.fingerprint, {}, Budget::entries(20))).ok());
  const auto narrower = expected(model, "knorm", Budget::entries(20));
  CHECK(in_force(*client, model) == narrower);
  CHECK(in_force(*client, second) == global);

  PutOptions options;
  options.recipe = "keydiff";
  CHECK(in_force(*client, model, options) == expected(model, "keydiff", Budget::entries(20)));
  options.keep = Budget::entries(7);
  CHECK(in_force(*client, model, options) == expected(model, "keydiff", Budget::entries(7)));

  const msg::Budgets shown = client->budgets(model.fingerprint).value();
  CHECK(shown.effective.keep == Budget::entries(20));
  CHECK(shown.layers.size() >= 3);

  client.reset();
  CHECK(service->stop() == 0);
  service = std::make_unique<ServiceProcess>(dir);
  client = service->connect();
  CHECK(in_force(*client, model) == narrower);

  REQUIRE(client->set_budget(change(model.fingerprint, {}, Budget::all())).ok());
  CHECK(in_force(*client, model) == global);
  REQUIRE(client->set_budget(change({}, "", Budget::all())).ok());
  CHECK(in_force(*client, model) == configured);
}

struct RollbackFixture : StoredFixture {
  RollbackFixture() : StoredFixture(kSeed) {}
};

TEST_CASE_METHOD(RollbackFixture,
                 "after a rollback, a put stores the same bits as before the change",
                 "[integration]") {
  const auto path = random_tokens(random, 300);
  const Kv kv = random_kv(random, model.spec, 0, 300);
  const auto stored = [&] {
    const msg::SegmentInfo segment = put(path, kv, {});
    PrefixCopy copy = read(path);
    REQUIRE(client->remove_segment(segment.id, false).ok());
    return copy;
  };
  REQUIRE(client->set_budget(change({}, "ada_keydiff", Budget::ratio_ppm(300'000))).ok());
  const PrefixCopy before = stored();
  REQUIRE(client->set_budget(change({}, "keydiff", Budget::entries(50))).ok());
  REQUIRE(client->set_budget(change(model.fingerprint, {}, Budget::entries(20))).ok());
  CHECK_FALSE(stored() == before);
  msg::RollBackBudget back;
  back.revision = 1;
  REQUIRE(client->roll_back_budget(back).ok());
  CHECK(stored() == before);
}

TEST_CASE("a budget that cannot be is refused and changes nothing", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  const InForce before = in_force(*client, model);
  const Status recipe = client->set_budget(change({}, "no_such_preset", {})).status();
  CHECK(recipe.code() == StatusCode::kInvalidArgument);
  CHECK(recipe.message().find("ada_keydiff") != std::string::npos);  // the choices
  for (const std::uint32_t ppm : {0u, 1'000'001u}) {
    const auto keep = change({}, {}, Budget::ratio_ppm(ppm));
    CHECK(client->set_budget(keep).status().code() == StatusCode::kInvalidArgument);
  }
  CHECK(client->set_budget(change(Digest{}, "knorm", {})).status().code() == StatusCode::kNotFound);
  CHECK(in_force(*client, model) == before);
}

}  // namespace
