// Settings of a cluster: what one node is told of models, profiles, budgets and tenants holds at
// all nodes.
#include <catch2/catch.hpp>
#include <functional>

#include "cachesvc/cluster/etcd.h"
#include "precis/block_digest.h"
#include "precis/profile.h"
#include "tests/integration/await_members.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint32_t kTokens = 192;  // three blocks

Budget keep_of(Client& client, const msg::BudgetScope& scope = {}) {
  return client.budgets(scope.model, scope.session).value().effective.keep.value();
}

Status set_keep(Client& client, const msg::BudgetScope& scope, std::uint32_t ppm) {
  msg::SetBudget change;
  change.scope = scope;
  change.keep = Budget::ratio_ppm(ppm);
  return client.set_budget(change).status();
}

Profile profile_of(const Model& model, const std::string& name) {
  Profile profile;
  profile.name = name;
  profile.model = model.fingerprint;
  profile.scorer = profile_scorer(*parse_recipe("lukv(keydiff)"));
  profile.num_layers = model.spec.num_layers;
  profile.num_kv_heads = model.spec.num_kv_heads;
  profile.num_tokens = 100;
  profile.table.assign(std::size_t{Profile::kCurveRows} * profile.num_layers * profile.num_kv_heads,
                       0.5f);
  return profile;
}

msg::AddTenant blue() {
  msg::AddTenant tenant;
  tenant.name = "blue";
  return tenant;
}

std::shared_ptr<Client> connect_as_blue(const Node& node, const std::string& token) {
  ConnectOptions options;
  options.tenant = "blue";
  options.token = token;
  auto client = Client::connect(node.address(), options);
  return client.ok() ? *client : nullptr;
}

}  // namespace

TEST_CASE("budgets, profiles and tenants that one node is told of hold at all",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b"), c(etcd, "c");
  await_members({&a, &b, &c});
  const auto at_a = a.connect_as("red"), at_b = b.connect_as("red"), at_c = c.connect_as("red");
  const Model model = at_a->register_model(tiny_model()).value();
  const msg::BudgetScope of_model{model.fingerprint, {}};

  REQUIRE(set_keep(*at_a, {}, 450'000).ok());
  REQUIRE(set_keep(*at_b, of_model, 550'000).ok());  // b first takes a's change
  REQUIRE(at_c->add_profile(profile_json(profile_of(model, "p"))).ok());
  for (Client* const client : {at_a.get(), at_b.get(), at_c.get()}) {
    await_that([&] { return keep_of(*client) == Budget::ratio_ppm(450'000); });
    await_that([&] { return keep_of(*client, of_model) == Budget::ratio_ppm(550'000); });
    await_that([&] { return client->profiles(std::nullopt).value().size() == 1; });
    const auto revisions = client->budget_revisions({}).value();
    CHECK(revisions.newest == 2);
    CHECK(revisions.rows.size() == 2);
  }
  msg::RollBackBudget back;
  back.revision = 0;
  REQUIRE(at_c->roll_back_budget(back).ok());
  await_that([&] { return keep_of(*at_a) == Budget::ratio_ppm(300'000); });
  REQUIRE(at_b->remove_profile(model.fingerprint, "p").ok());
  await_that([&] { return at_a->profiles(std::nullopt).value().empty(); });

  // A tenant is admitted everywhere, and its connections end everywhere.
  const auto added = a.client().add_tenant(blue());
  REQUIRE(added.ok());
  std::vector<std::shared_ptr<Client>> blues;
  for (const Node* const node : {&a, &b, &c}) {
    await_that([&] { return connect_as_blue(*node, added->token) != nullptr; });
    blues.push_back(connect_as_blue(*node, added->token));
  }
  CHECK(b.client().add_tenant(blue()).status().code() == StatusCode::kConflict);
  const auto renewed = c.client().rotate_token("blue", false).value();
  REQUIRE(b.client().rotate_token("blue", true).ok());
  for (const Node* const node : {&a, &b, &c}) {
    await_that([&] { return connect_as_blue(*node, added->token) == nullptr; });
    CHECK(connect_as_blue(*node, renewed.token) != nullptr);
  }
}

TEST_CASE("a node that has just been told of a model is not needed by the others",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  await_members({&a, &b});
  const auto at_a = a.connect_as("red");
  std::mt19937 random(1);
  // Each owner knows each new model at the first put, and each profile that a put names.
  for (int i = 0; i < 12; ++i) {
    ModelSpec spec = tiny_model();
    spec.revision = "revision " + std::to_string(i);
    const Model model = at_a->register_model(spec).value();
    REQUIRE(at_a->add_profile(profile_json(profile_of(model, "p"))).ok());
    const auto tokens = random_tokens(random, kTokens);
    PutOptions options = keep_most();
    options.recipe = "lukv(keydiff)";
    const auto stored =
        put_all(*at_a, model, tokens, random_kv(random, model.spec, 0, kTokens), options);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
  }
  CHECK(stored_at(a) + stored_at(b) == 12);
  CHECK(stored_at(b) > 0);
  ModelSpec unknown = tiny_model();
  unknown.revision = "unknown";
  const Model not_there{unknown, model_fingerprint(unknown), {}};
  CHECK(at_a->lookup(not_there, random_tokens(random, kTokens)).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a node that joins late, or was away, has the cluster's settings and no others",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a", "", 2), b(etcd, "b", "", 2);
  await_members({&a, &b});
  const auto at_a = a.connect_as("red");
  const Model model = at_a->register_model(tiny_model()).value();
  REQUIRE(set_keep(*at_a, {}, 450'000).ok());
  const auto added = a.client().add_tenant(blue());
  REQUIRE(added.ok());
  await_that([&] { return connect_as_blue(b, added->token) != nullptr; });
  b.kill();
  await(a, shared_by({"a"}));
  REQUIRE(set_keep(*at_a, {}, 650'000).ok());
  REQUIRE(a.client().remove_tenant("blue", false).ok());
  b.start();
  Node c(etcd, "c");
  await_members({&a, &b, &c});
  for (const Node* const node : {&b, &c}) {
    const auto client = node->connect_as("red");
    CHECK(keep_of(*client) == Budget::ratio_ppm(650'000));
    CHECK(client->models().value().size() == 1);
    CHECK(client->budget_revisions({}).value().newest == 2);
    CHECK(connect_as_blue(*node, added->token) == nullptr);
  }
}

TEST_CASE("a service that forms a cluster keeps its settings", "[integration][cluster]") {
  // An etcd that comes back empty is a new cluster to its nodes.
  auto etcd = std::make_unique<EtcdMembers>();
  Node a(*etcd, "a"), b(*etcd, "b");
  await_members({&a, &b});
  REQUIRE(set_keep(*a.connect_as("red"), {}, 450'000).ok());
  await_that([&] { return keep_of(*b.connect_as("red")) == Budget::ratio_ppm(450'000); });
  cluster::Etcd direct(cluster::parse_etcd_urls(etcd->urls()).value());
  REQUIRE(direct.remove_below("precis-agreed/").ok());
  REQUIRE(direct.remove_below("precis/").ok());
  await_members({&a, &b});
  for (const Node* const node : {&a, &b}) {
    CHECK(keep_of(*node->connect_as("red")) == Budget::ratio_ppm(450'000));
  }
  REQUIRE(set_keep(*b.connect_as("red"), {}, 550'000).ok());
  await_that([&] { return keep_of(*a.connect_as("red")) == Budget::ratio_ppm(550'000); });
}

TEST_CASE("a tenant is removed with what all nodes store of it, or refused",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  await_members({&a, &b});
  const auto added = a.client().add_tenant(blue());
  REQUIRE(added.ok());
  await_that([&] { return connect_as_blue(b, added->token) != nullptr; });
  const auto client = connect_as_blue(a, added->token);
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(1);
  for (int i = 0; i < 12; ++i) {
    const auto tokens = random_tokens(random, kTokens);
    REQUIRE(put_all(*client, model, tokens, random_kv(random, model.spec, 0, kTokens), keep_most())
                .ok());
  }
  CHECK(a.client().remove_tenant("blue", false).status().code() == StatusCode::kConflict);
  const auto removed = a.client().remove_tenant("blue", true);
  REQUIRE(removed.ok());
  CHECK(removed->segments == 12);
  await_that([&] { return b.client().tenants().value().size() == 2; });
  for (const Node* const node : {&a, &b}) {
    await_that([&] { return connect_as_blue(*node, added->token) == nullptr; });
  }
}

TEST_CASE("settings are not changed while etcd does not answer", "[integration][cluster]") {
  EtcdMembers etcd;
  Node a(etcd, "a");
  await_members({&a});
  const auto client = a.connect_as("red");
  REQUIRE(client->register_model(tiny_model()).ok());
  etcd.kill(0);
  const auto hurried = client->with_deadline(3000);
  const Status refused = set_keep(*hurried, {}, 450'000);
  CHECK_FALSE(refused.ok());
  CHECK_THAT(refused.message(), Contains("etcd did not answer"));
  CHECK(client->register_model(tiny_model()).ok());  // it changes nothing
  CHECK(keep_of(*client) == Budget::ratio_ppm(300'000));
  etcd.start(0);
  await_that([&] { return set_keep(*client, {}, 450'000).ok(); });
  CHECK(keep_of(*client) == Budget::ratio_ppm(450'000));
}
