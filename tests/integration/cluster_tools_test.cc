// precisctl tells operators about a cluster.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "precis/limits.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;

constexpr std::uint32_t kTokens = 192;  // three blocks

json planned(const Node& node, std::vector<std::string> words) {
  words.insert(words.begin(), {"rebalance", "--dry-run", "--json"});
  const Ran ran = node.ctl(words);
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  return json::parse(ran.out);
}

std::map<std::string, std::uint32_t> owned_after(const json& plan) {
  std::map<std::string, std::uint32_t> shards;
  for (const json& node : plan["nodes"]) shards[node["name"]] = node["shards_after"];
  return shards;
}
std::map<std::string, std::uint32_t> owned(const msg::ClusterState& state) {
  std::map<std::string, std::uint32_t> shards;
  for (const msg::ClusterNode& node : state.nodes) shards[node.name] = node.shards;
  return shards;
}

// How many shards go from one node to another between two tables.
json moves_between(const msg::ClusterState& before, const msg::ClusterState& after) {
  std::map<std::pair<std::string, std::string>, std::uint32_t> counts;
  for (std::size_t shard = 0; shard < limits::kShards; ++shard) {
    const std::string& from = before.nodes[before.owners[shard]].name;
    const std::string& to = after.nodes[after.owners[shard]].name;
    if (from != to) ++counts[{from, to}];
  }
  json moves = json::array();
  for (const auto& [nodes, shards] : counts) {
    moves.push_back({{"from", nodes.first}, {"to", nodes.second}, {"shards", shards}});
  }
  return moves;
}
json without_bytes(json moves) {
  for (json& move : moves) move.erase("bytes");
  return moves;
}

void put_some(Client& client, const Model& model, int count) {
  std::mt19937 random(20261129);
  for (int n = 0; n < count; ++n) {
    REQUIRE(put_all(client, model, random_tokens(random, kTokens),
                    random_kv(random, tiny_model(), 0, kTokens), keep_most())
                .ok());
  }
}

}  // namespace

TEST_CASE("a rebalance tells what moves when a node is drained, and when one comes",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b"), c(etcd, "c");
  const auto three = await(a, shared_by({"a", "b", "c"}));
  await(b, shared_by({"a", "b", "c"}));
  const auto client = a.connect_as("red");
  put_some(*client, client->register_model(tiny_model()).value(), 12);

  const json drained = planned(b, {"--without", "b"});
  CHECK(drained["moved_shards"] == shards_of(three, "b"));
  CHECK((drained["moved_bytes"] > 0) == (stored_at(b) > 0));
  REQUIRE(b.ctl({"drain", "b"}).exit_code == 0);
  const auto two =
      await(a, [](const msg::ClusterState& state) { return shards_of(state, "b") == 0; });
  CHECK(owned_after(drained) == owned(two));
  CHECK(without_bytes(drained["moves"]) == moves_between(three, two));

  const json came = planned(a, {"--with", "d=200"});
  Node d(etcd, "d", "cluster_weight = 200\n");
  const auto with_d =
      await(a, [](const msg::ClusterState& state) { return shards_of(state, "d") > 0; });
  CHECK(owned_after(came) == owned(with_d));
  CHECK(without_bytes(came["moves"]) == moves_between(two, with_d));
  CHECK(planned(a, {"--with", "b=100"})["moved_shards"] > 0);  // as if its drain ended

  CHECK(planned(a, {})["moves"].empty());
  CHECK_THAT(a.ctl({"rebalance", "--dry-run"}).out, Contains("no shard would move"));
  const Ran text = a.ctl({"rebalance", "--dry-run", "--without", "c", "--without", "d"});
  CHECK_THAT(text.out, Contains("shards would move") && Contains("share no storage"));
}

TEST_CASE("a rebalance refuses what cannot be, and what nodes do by themselves",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a");
  await(a, shared_by({"a"}));
  CHECK(a.ctl({"rebalance"}).exit_code == 2);
  CHECK(a.ctl({"rebalance", "--dry-run", "--without", "nobody"}).exit_code == 3);
  CHECK(a.ctl({"rebalance", "--dry-run", "--without", "a"}).exit_code == 6);
  for (const char* const wrong : {"b", "b=", "=5", "b=0", "b=x", "b=1000001"}) {
    const Ran ran = a.ctl({"rebalance", "--dry-run", "--with", wrong});
    CHECK(ran.exit_code == 2);
    CHECK_THAT(ran.err, Contains("such as node-4=100"));
  }
}

TEST_CASE("status says that a node is no member, and fails for it only if it is asked to",
          "[integration][cluster]") {
  EtcdMembers etcd;
  Node a(etcd, "a");
  await(a, shared_by({"a"}));
  const auto status = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", a.address(), "--tenant", "ops",
                                 "--token", "boss", "status"});
    return run(words);
  };
  CHECK(status({"--ready"}).exit_code == 0);
  CHECK(json::parse(status({"--json"}).out)["cluster"]["state"] == "member");
  etcd.kill(0);
  await(a, [](const auto& state) { return state.state == "cut_off"; });
  const Ran alive = status({});
  CHECK(alive.exit_code == 0);  // it answers, so nothing should restart it
  CHECK_THAT(alive.out, Contains("WARNING: a is no member of the cluster precis"));
  const Ran ready = status({"--ready"});
  CHECK(ready.exit_code == 4);
  CHECK_THAT(ready.err, Contains("a is no member of the cluster precis"));
  CHECK(json::parse(status({"--json"}).out)["cluster"]["state"] == "cut_off");
  const Ran listed = run({PRECISCTL_PATH, "--address", a.address(), "--tenant", "red", "--timeout",
                          "0.5", "prefix", "ls"});
  CHECK(listed.exit_code == 4);
  CHECK_THAT(listed.err, Contains("not a member of the cluster") && Contains("ask another node") &&
                             !Contains("PRECIS_ADDRESS"));
}
