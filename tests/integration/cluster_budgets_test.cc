// Changes of budgets are applied to what all nodes of a cluster store, whichever node is asked.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/integration/await_members.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/free_port.h"
#include "tests/integration/http_call.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

constexpr std::uint32_t kTokens = 192;  // three blocks
constexpr std::uint64_t kPrompts = 24;

void put_some(Client& client, std::uint64_t count, unsigned seed = 20261129) {
  const Model model = client.register_model(tiny_model()).value();
  std::mt19937 random(seed);
  for (std::uint64_t n = 0; n < count; ++n) {
    REQUIRE(put_all(client, model, random_tokens(random, kTokens),
                    random_kv(random, tiny_model(), 0, kTokens), keep_most())
                .ok());
  }
}

// How many of the stored segments were trimmed to `ppm`.
std::uint64_t trimmed_to(Client& client, std::uint32_t ppm) {
  const auto segments = client.segments().value();
  return static_cast<std::uint64_t>(
      std::ranges::count_if(segments, [&](const msg::SegmentInfo& segment) {
        return client.segment(segment.id)->trimmed == Budget::ratio_ppm(ppm);
      }));
}

msg::SetBudget keep(std::uint32_t ppm) {
  msg::SetBudget change;
  change.keep = Budget::ratio_ppm(ppm);
  return change;
}

msg::BudgetApplication ended(Client& client) {
  await_that([&] { return client.application().value().state != "running"; });
  return client.application().value();
}

json ctl(const Node& node, std::vector<std::string> words) {
  words.insert(words.begin(),
               {PRECISCTL_PATH, "--address", node.address(), "--tenant", "red", "budget"});
  words.emplace_back("--json");
  const Ran ran = run(words);
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  return json::parse(ran.out);
}

}  // namespace

TEST_CASE("budgets are applied to what all nodes store", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b"), c(etcd, "c");
  await_members({&a, &b, &c});
  const auto client = a.connect_as("red");
  put_some(*client, kPrompts);
  for (const Node* const node : {&a, &b, &c}) REQUIRE(stored_at(*node) > 0);

  const json tried = ctl(b, {"set", "--keep", "0.3", "--dry-run"});
  CHECK(tried["stored"]["trimmed_segments"] == kPrompts);
  CHECK_FALSE(tried["next_put"].is_null());
  CHECK(client->budget_revisions({})->newest == 0);
  const json set = ctl(b, {"set", "--keep", "0.3", "--apply-to-stored"});
  CHECK(set["stored"]["state"] == "done");
  CHECK(set["stored"]["trimmed_segments"] == kPrompts);
  CHECK(set["stored"]["freed_bytes"] == tried["stored"]["freed_bytes"]);
  CHECK(client->segments().value().size() == kPrompts);
  CHECK(trimmed_to(*client, 300'000) == kPrompts);
  CHECK(client->budget_revisions({})->newest == 1);
  const json application = ctl(c, {"application"});
  CHECK(application["number"] == set["stored"]["number"]);
  CHECK(application["trimmed_segments"] == kPrompts);

  // A second application finds nothing more to trim.
  const json again = ctl(b, {"set", "--keep", "0.3", "--apply-to-stored"});
  CHECK(again["stored"]["trimmed_segments"] == 0);
  CHECK(again["stored"]["number"] > set["stored"]["number"]);
  msg::SetBudget change = keep(200'000);
  change.apply_to_stored = true;
  change.if_revision = 7;
  CHECK(client->set_budget(change).status().code() == StatusCode::kConflict);
  CHECK(client->cancel_application().ok());  // none runs
}

TEST_CASE("a rollback of budgets is applied to what all nodes store", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b"), c(etcd, "c");
  await_members({&a, &b, &c});
  const auto client = a.connect_as("red");
  put_some(*client, kPrompts);
  for (const Node* const node : {&a, &b, &c}) REQUIRE(stored_at(*node) > 0);
  REQUIRE(client->set_budget(keep(200'000)).ok());
  REQUIRE(client->set_budget(keep(800'000)).ok());

  const json tried = ctl(c, {"rollback", "1", "--dry-run"});
  CHECK(tried["stored"]["trimmed_segments"] == kPrompts);
  CHECK(trimmed_to(*client, 200'000) == 0);
  const json back = ctl(b, {"rollback", "1", "--apply-to-stored"});
  CHECK(back["number"] == 3);
  CHECK(back["stored"]["state"] == "done");
  CHECK(back["stored"]["trimmed_segments"] == kPrompts);
  CHECK(trimmed_to(*client, 200'000) == kPrompts);
}

TEST_CASE("budgets that are changed through the HTTP API are applied at all nodes",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  const std::string port = free_port();
  Node a(etcd, "a", "admin = '127.0.0.1:" + port + "'\n"), b(etcd, "b"), c(etcd, "c");
  await_members({&a, &b, &c});
  const auto client = b.connect_as("red");
  put_some(*client, kPrompts);
  for (const Node* const node : {&a, &b, &c}) REQUIRE(stored_at(*node) > 0);
  REQUIRE(client->set_budget(keep(200'000)).ok());
  const auto change = [&](const char* method, const std::string& path, json body) {
    body["apply_to_stored"] = true;
    const HttpAnswer answer =
        http_call(port, method, "/api/v1/budgets" + path + "?tenant=red", body.dump());
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    const msg::BudgetApplication done = ended(*client);
    CHECK(done.number == json::parse(answer.body)["application"]);
    return done;
  };
  const msg::BudgetApplication set = change("PUT", "", {{"keep", "50%"}});
  CHECK(set.state == "done");
  CHECK(set.trimmed_segments == kPrompts);
  CHECK(trimmed_to(*client, 500'000) == kPrompts);
  const msg::BudgetApplication back = change("POST", "/revisions/1/rollback", json::object());
  CHECK(back.state == "done");
  CHECK(back.trimmed_segments == kPrompts);
  CHECK(trimmed_to(*client, 200'000) == kPrompts);
}

TEST_CASE("a node that was away applies budgets to what it stored before they were set",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a", "", 2), b(etcd, "b", "", 2);
  await_members({&a, &b});
  const auto client = a.connect_as("red");
  put_some(*client, kPrompts);
  const std::uint64_t at_a = stored_at(a), at_b = stored_at(b);
  REQUIRE(at_b > 0);
  b.kill();
  await(a, shared_by({"a"}));
  msg::SetBudget change = keep(300'000);
  change.apply_to_stored = true;
  const auto set = client->set_budget(change);
  REQUIRE(set.ok());
  CHECK(ended(*client).trimmed_segments == at_a);
  b.start();
  await_members({&a, &b});
  await_that([&] { return ended(*client).trimmed_segments == at_a + at_b; });
  CHECK(client->application()->number == set->application);
  CHECK(trimmed_to(*client, 300'000) == kPrompts);

  // Segments that were put later are left, also by a node that applies the budgets again.
  put_some(*client, kPrompts, 7);
  REQUIRE(stored_at(b) > at_b);
  b.kill();
  b.start();
  await_members({&a, &b});
  await_that([&] { return ended(*client).trimmed_segments == at_a; });
  CHECK(trimmed_to(*client, 300'000) == kPrompts);

  // A node that was away when an application was canceled does not apply its budgets, also if a dry
  // run came before the cancellation. The node does not count for that dry run either.
  change.keep = Budget::ratio_ppm(200'000);
  b.kill();
  await(a, shared_by({"a"}));
  const auto last = client->set_budget(change);
  REQUIRE(last.ok());
  ended(*client);
  change.keep = Budget::ratio_ppm(100'000);
  change.dry_run = true;
  REQUIRE(client->set_budget(change).ok());
  const msg::BudgetApplication counted = ended(*client);
  CHECK(counted.dry_run);
  CHECK(client->cancel_application(counted.number + 1).status().code() == StatusCode::kConflict);
  REQUIRE(client->cancel_application(last->application).ok());
  b.start();
  await_members({&a, &b});
  CHECK(ended(*client).segments == counted.segments);
  CHECK(trimmed_to(*client, 200'000) == stored_at(a));
}

TEST_CASE("a budget of a session is applied at the node that has the session",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  await_members({&a, &b});
  const auto client = a.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(3);
  for (const std::string name : {"chat-1", "chat-2", "chat-3"}) {
    REQUIRE(client->open_session(name, 600).ok());
    PutOptions options = keep_most();
    options.session = name;
    const auto stored = put_all(*client, model, random_tokens(random, kTokens),
                                random_kv(random, tiny_model(), 0, kTokens), options);
    REQUIRE(stored.ok());
    REQUIRE(client->advance_session(name, stored->id).ok());
    const Ran ran = run({PRECISCTL_PATH, "--address", b.address(), "--tenant", "red", "budget",
                         "set", "--session", name, "--keep", "0.3", "--apply-to-stored", "--json"});
    INFO(ran.err);
    REQUIRE(ran.exit_code == 0);
    CHECK(json::parse(ran.out)["stored"]["trimmed_segments"] == 1);
  }
}

TEST_CASE("the HTTP API of a node in a cluster removes no model and no tenant",
          "[integration][cluster]") {
  const TempDir files;
  std::ofstream(files.path("token")) << "secret";
  const EtcdMembers etcd;
  const std::string port = free_port();
  Node a(etcd, "a",
         "admin = '127.0.0.1:" + port + "'\nadmin_token_file = '" + files.path("token") + "'\n");
  await_members({&a});
  msg::AddTenant blue;
  blue.name = "blue";
  REQUIRE(a.client().add_tenant(blue).ok());
  const auto client = a.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  const auto remove = [&](const std::string& what) {
    return http_call(port, "DELETE", "/api/v1/" + what, "", "secret");
  };
  const HttpAnswer of_model = remove("models/" + model.fingerprint.hex() + "?tenant=red");
  CHECK(of_model.status == 501);
  CHECK_THAT(of_model.body, Contains("use precisctl model rm"));
  CHECK(client->models().value().size() == 1);
  const HttpAnswer of_tenant = remove("tenants/blue?tenant=ops");
  CHECK(of_tenant.status == 501);
  CHECK_THAT(of_tenant.body, Contains("use precisctl tenant rm"));
  CHECK(a.client().tenant("blue").ok());
}
