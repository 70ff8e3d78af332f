// Budgets that are a loss: puts at what a profile measured, defaults, and what stays as it is.
#include "precis/loss_budget.h"

#include <catch2/catch.hpp>

#include "tests/integration/precisctl_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kTokens = 400;

class Losses : protected PrecisctlFixture {
 protected:
  // A probe whose predictions are all the same, with losses in contexts of 200 and 1,000 tokens.
  Profile measured_probe() const {
    Profile probe;
    probe.name = "probe";
    probe.kind = Profile::Kind::kProbe;
    probe.model = model.fingerprint;
    const Recipe recipe = parse_recipe("global_kvprobe(encoding=k6v4)").value();
    probe.scorer = profile_scorer(recipe);
    probe.num_layers = model.spec.num_layers;
    probe.num_kv_heads = model.spec.num_kv_heads;
    probe.table.assign(
        std::size_t{ProbeRows{model.spec.head_dim}.count()} * probe.num_layers * probe.num_kv_heads,
        0);
    probe.losses = {{200, 100'000, 0.02f, 0.01f},
                    {1000, 100'000, 0.01f, 0.01f},  // by chance: more entries lose more
                    {1000, 250'000, 0.2f, 0.01f},
                    {1000, 500'000, 0.04f, 0.005f},
                    {1000, 750'000, 0.03f, 0.5f},  // uncertain, but no larger on average
                    {1000, 1'000'000, 0.02f, 0.001f}};
    probe.losses_recipe = measured_recipe(recipe);
    return probe;
  }
  void add(const Profile& profile) { REQUIRE(client->add_profile(profile_json(profile)).ok()); }
  static PutOptions losing(double loss) {
    PutOptions how;
    how.keep = Budget::loss(loss).value();
    return how;
  }
  msg::SetBudget set_loss(double loss) const {
    msg::SetBudget change;
    change.scope.model = model.fingerprint;
    change.keep = Budget::loss(loss).value();
    return change;
  }
};

TEST_CASE_METHOD(Losses, "a put at a loss keeps what was measured to cost no more",
                 "[integration]") {
  const std::vector<TokenId> tokens = random_tokens(random, kTokens);
  const Status none = client->begin_put(model, tokens, losing(0.05)).status();
  CHECK(none.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(none.message(), Catch::Contains("keep 'loss 0.05' needs a recipe with a profile"));
  add(measured_probe());
  const msg::SegmentInfo half = store(kTokens, losing(0.05));
  CHECK(half.budget == Budget::ratio_ppm(500'000));
  CHECK(half.encoding == Encoding::kK6V4);
  CHECK(store(kTokens, losing(0.15)).budget == Budget::ratio_ppm(500'000));
  CHECK(store(kTokens, losing(0.3)).budget == Budget::ratio_ppm(100'000));
  CHECK(store(100, losing(0.03)).budget == Budget::ratio_ppm(100'000));  // a shorter path
  // All entries in the measured encoding.
  const msg::SegmentInfo whole = store(kTokens, losing(0.021));
  CHECK(whole.entries == std::uint64_t{kTokens} * 4 * 2);
  CHECK(whole.encoding == Encoding::kK6V4);
  // No measured budget costs so little, so all entries are kept as they were pushed.
  const msg::SegmentInfo all = store(kTokens, losing(0.01));
  CHECK(all.entries == std::uint64_t{kTokens} * 4 * 2);
  CHECK(all.encoding == Encoding::kRaw);
  // A limit holds.
  msg::SetBudget limit;
  limit.limit = Budget::ratio_ppm(400'000);
  REQUIRE(client->set_budget(limit).ok());
  CHECK(store(kTokens, losing(0.05)).budget == Budget::ratio_ppm(400'000));
}

TEST_CASE_METHOD(Losses, "a default at a loss needs measured losses of its recipe",
                 "[integration]") {
  CHECK_THAT(client->set_budget(set_loss(0.05)).status().message(),
             Catch::Contains("needs a recipe with a profile"));
  Profile unmeasured = measured_probe();
  unmeasured.losses.clear();
  unmeasured.losses_recipe.clear();
  add(unmeasured);
  CHECK_THAT(client->set_budget(set_loss(0.05)).status().message(),
             Catch::Contains("profile 'probe' has none"));
  const msg::SegmentInfo before = store(kTokens, {});
  add(measured_probe());
  // Losses change no selection, so the recipe is the same.
  CHECK(store(kTokens, {}).recipe == before.recipe);
  REQUIRE(client->set_budget(set_loss(0.05)).ok());
  const msg::SegmentInfo stored = store(kTokens, {});
  CHECK(stored.budget == Budget::ratio_ppm(500'000));
  CHECK(ctl({"profile", "show", "probe"}).out.find("+0.040") != std::string::npos);
  CHECK(budget_json({"show", "--model", "test/tiny"}).dump().find("\"loss\"") != std::string::npos);
  const auto told = budget_json({"set", "--model", "test/tiny", "--keep", "loss 0.3", "--dry-run"});
  const auto next = told["next_put"]["stored_bytes"].get<std::uint64_t>();
  const Budget tenth = Budget::ratio_ppm(100'000);
  CHECK(next ==
        client->trim_segment(stored.id, tenth, Durability::kWal, /*dry_run=*/true)->stored_bytes);
  // Another recipe has other losses, and may not be set alone either.
  msg::SetBudget other;
  other.scope.model = model.fingerprint;
  other.recipe = "global_kvprobe(encoding=int8)";
  CHECK_THAT(client->set_budget(other).status().message(),
             Catch::Contains("needs losses of recipe global_kvprobe(encoding=int8") &&
                 Catch::Contains("are of global_kvprobe(encoding=k6v4"));
}

TEST_CASE_METHOD(Losses, "a budget of an earlier build counts as its cap", "[integration]") {
  PutOptions how;
  how.keep = Budget{Budget::Kind::kScoreMass, 900'000 | (250'000ull << 32)};
  CHECK(store(kTokens, how).budget == Budget::ratio_ppm(250'000));
  how.parent_read = Budget::loss(0.05).value();
  CHECK_THAT(client->begin_put(model, random_tokens(random, kTokens), how).status().message(),
             Catch::Contains("parent_read is loss 0.05, and a loss is for puts"));
}

TEST_CASE_METHOD(Losses, "segments whose new budget is a loss are named, and stay",
                 "[integration]") {
  add(measured_probe());
  PutOptions how;
  how.keep = Budget::ratio(0.8).value();
  const msg::SegmentInfo stored = store(kTokens, how);
  msg::SetBudget change;
  change.keep = Budget::ratio(0.2).value();
  REQUIRE(client->set_budget(change).ok());
  REQUIRE(client->set_budget(set_loss(0.05)).ok());
  change.scope.model = model.fingerprint;
  change.keep = Budget::ratio(0.7).value();
  REQUIRE(client->set_budget(change).ok());
  msg::RollBackBudget back;
  back.revision = 2;
  back.apply_to_stored = true;
  REQUIRE(client->roll_back_budget(back).ok());
  msg::BudgetApplication done = client->application().value();
  while (done.state == "running") done = client->application().value();
  CHECK(done.state == "done");
  CHECK(done.loss == model.spec.name);
  CHECK(done.segments == 0);
  CHECK(client->segment(stored.id).value() == stored);
}

}  // namespace
