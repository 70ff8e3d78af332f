// Nodes of a cluster: real processes of precisd with a real etcd.
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cachesvc/cluster/etcd.h"
#include "cachesvc/cluster/view.h"
#include "precis/limits.h"
#include "tests/catch_runner.h"
#include "tests/integration/cluster_node.h"
#include "tests/unit/transport/certificate.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

// Waits until each node has renewed its lease `times` times. Each must be a member all the time.
void await_renewals(std::initializer_list<Node*> nodes, int times) {
  for (Node* const node : nodes) {
    std::uint32_t left = ~0u;
    int renewed = 0;
    await(*node, [&](const msg::ClusterState& state) {
      REQUIRE(state.state == "member");
      if (state.lease_left_ms > left) ++renewed;
      left = state.lease_left_ms;
      return renewed >= times;
    });
  }
}

bool all_owned_by(const msg::ClusterState& state, const std::string& name) {
  return shards_of(state, name) == limits::kShards;
}

}  // namespace

TEST_CASE("nodes share the shards, take over those of one that dies, and give them back",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b"), c(etcd, "c");
  const auto before = await(a, shared_by({"a", "b", "c"}));
  for (Node* const node : {&b, &c}) {
    CHECK(await(*node, shared_by({"a", "b", "c"})).owners == before.owners);
  }
  CHECK(before.node == "a");
  CHECK(before.nodes[1].address == b.address());
  CHECK(before.error.empty());

  CHECK(b.kill() == -SIGKILL);
  const auto without = await(a, shared_by({"a", "c"}));
  CHECK(without.revision > before.revision);
  // Only the shards of the dead node have moved.
  std::size_t moved = 0;
  for (std::size_t s = 0; s < limits::kShards; ++s) {
    const std::string& owner = before.nodes[before.owners[s]].name;
    moved += without.nodes[without.owners[s]].name != owner;
    if (owner != "b") REQUIRE(without.nodes[without.owners[s]].name == owner);
  }
  CHECK(moved == shards_of(before, "b"));

  b.start();
  const auto after = await(b, shared_by({"a", "b", "c"}));
  std::size_t same = 0;
  for (std::size_t s = 0; s < limits::kShards; ++s) {
    same += before.nodes[before.owners[s]].name == "b" && after.nodes[after.owners[s]].name == "b";
  }
  CHECK(same * 2 > shards_of(before, "b"));
}

TEST_CASE("a node that is stopped leaves at once, long before its lease ends",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a", "", 600), b(etcd, "b", "", 600);
  await(a, shared_by({"a", "b"}));
  CHECK(b.stop() == 0);
  await(a, shared_by({"a"}));
}

TEST_CASE("a node that is drained gives away its shards, and stays", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  await(a, shared_by({"a", "b"}));
  const Ran drained = b.ctl({"drain", "a"});  // any node can be asked
  CHECK(drained.exit_code == 0);
  CHECK_THAT(drained.out, Contains("a gives away its shards"));
  const auto state = await(a, [](const auto& now) { return all_owned_by(now, "b"); });
  REQUIRE(state.nodes.size() == 2);
  CHECK(state.nodes[0].draining);
  CHECK(a.ctl({"drain", "a"}).out == "a was drained already\n");
  CHECK_THAT(a.ctl({"status"}).out, Contains("draining") && Contains("member (its lease ends in "));
  a.stop();
  await(b, [](const auto& now) { return now.nodes.size() == 2 && !now.nodes[0].live; });
  CHECK_THAT(b.ctl({"status"}).out, Contains("gone, drained"));
  a.start();  // the drain outlives the node
  CHECK(await(b, [](const auto& now) { return now.nodes.size() == 2 && now.nodes[0].live; })
            .nodes[0]
            .draining);
  CHECK(b.ctl({"drain", "a", "--off"}).exit_code == 0);
  await(a, shared_by({"a", "b"}));
  CHECK(a.ctl({"drain", "a", "--off"}).out == "a was not drained\n");

  const Ran last = (b.stop(), await(a, shared_by({"a"})), a.ctl({"drain", "a"}));
  CHECK(last.exit_code == 6);
  CHECK_THAT(last.err, Contains("no other node could own the shards"));
  CHECK(a.ctl({"drain", "b", "--off"}).exit_code == 3);  // it is gone, and was not drained
  const Ran unknown = a.ctl({"drain", "nobody"});
  CHECK(unknown.exit_code == 3);
  CHECK_THAT(unknown.err, Contains("has no node 'nobody'"));
}

TEST_CASE("weights decide how many shards a node owns", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a", "cluster_weight = 300\n"), b(etcd, "b", "cluster_weight = 100\n");
  await(a, [](const auto& state) {
    return shards_of(state, "a") == limits::kShards / 4 * 3 &&
           shards_of(state, "b") == limits::kShards / 4;
  });
  const auto status = nlohmann::json::parse(b.ctl({"status", "--json"}).out);
  CHECK(status["nodes"][0]["weight"] == 300);
  CHECK_FALSE(status.contains("owners"));
  const auto map = nlohmann::json::parse(b.ctl({"map", "--json"}).out);
  CHECK(map["owners"].size() == limits::kShards);
  CHECK_THAT(b.ctl({"map"}).out, Contains("12 288"));
}

TEST_CASE("without etcd a node is a member until its lease ends, and joins again later",
          "[integration][cluster]") {
  EtcdMembers etcd;
  Node a(etcd, "a");
  await(a, shared_by({"a"}));
  etcd.kill(0);
  const auto alone = await(a, [](const auto& state) { return state.state == "cut_off"; });
  CHECK_FALSE(alone.error.empty());
  CHECK(alone.lease_left_ms == 0);
  CHECK(alone.owners.size() == limits::kShards);
  const Ran status = a.ctl({"status"});
  CHECK(status.exit_code == 0);
  CHECK_THAT(status.out, Contains("cut off") && Contains("etcd (cluster_etcd): "));
  const Ran drained = a.ctl({"drain", "a", "--off"});
  CHECK(drained.exit_code == 7);
  CHECK_THAT(drained.err, Contains("etcd did not answer"));
  etcd.start(0);
  await(a, shared_by({"a"}));
}

TEST_CASE("a node that was stopped for longer than its lease joins again",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  await(a, shared_by({"a", "b"}));
  ::kill(b.pid(), SIGSTOP);
  await(a, shared_by({"a"}));
  ::kill(b.pid(), SIGCONT);
  await(a, shared_by({"a", "b"}));
  await(b, shared_by({"a", "b"}));
}

TEST_CASE("the death of etcd's leader changes nothing", "[integration][cluster]") {
  EtcdMembers etcd(3);
  Node a(etcd, "a", "", 15), b(etcd, "b", "", 15);
  const auto before = await(a, shared_by({"a", "b"}));
  etcd.kill(etcd.leader());
  await_renewals({&a, &b}, 2);
  const auto after = await(a, shared_by({"a", "b"}));
  CHECK(after.revision == before.revision);
  CHECK(after.owners == before.owners);
}

TEST_CASE("a second node of the same name waits and says why", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node first(etcd, "a");
  await(first, shared_by({"a"}));
  Node second(etcd, "a");
  const auto state = await(second, [](const auto& now) {
    return now.error.find("set cluster_node to another name") != std::string::npos;
  });
  CHECK(state.state == "joining");
  CHECK(first.state().state == "member");
  first.stop();
  await(second, shared_by({"a"}));
}

TEST_CASE("rows that this version does not understand are left alone and named",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  cluster::Etcd rows(cluster::parse_etcd_urls(etcd.urls()).value());
  const auto [key, value, told] = GENERATE(table<std::string, std::string, std::string>(
      {{"precis/precis/owners", "{\"format\": 9}", "run one version on all nodes"},
       {"precis/precis/owners", "tomatoes", "is not one of Precis"},
       {"precis/precis/nodes/x", "{}", "is not one of Precis"}}));
  REQUIRE(rows.write({key, value, 0}).ok());
  Node a(etcd, "a");
  await(a, [&, why = told](const auto& now) { return now.error.find(why) != std::string::npos; });
  const auto left = rows.read(key).value();
  REQUIRE(left.rows.size() == 1);
  CHECK(left.rows[0].value == value);
  REQUIRE(rows.remove(key).ok());
  await(a, shared_by({"a"}));
}

TEST_CASE("members stay members while etcd has rows that they do not understand",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  const auto before = await(a, shared_by({"a", "b"}));
  cluster::Etcd rows(cluster::parse_etcd_urls(etcd.urls()).value());
  REQUIRE(rows.write({"precis/precis/nodes/\xff", "{}", 0}).ok());
  const auto named = [](const auto& state) {
    return state.error.find("nodes/\\xff in etcd is not one of Precis") != std::string::npos;
  };
  await(a, named);
  await_renewals({&a, &b}, 3);  // longer than a lease
  CHECK(a.state().revision == before.revision);
  REQUIRE(b.kill() == -SIGKILL);
  CHECK(named(await(a, [](const auto& now) { return all_owned_by(now, "a"); })));
}

TEST_CASE("clusters of different names share an etcd and nothing else", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b", "cluster_name = \"other\"\n");
  await(a, shared_by({"a"}));
  CHECK(await(b, shared_by({"b"})).name == "other");
}

TEST_CASE("all tenants see the nodes, and only admins what is wrong, and drain one",
          "[integration][cluster]") {
  EtcdMembers etcd;
  Node a(etcd, "a");
  await(a, shared_by({"a"}));
  const auto red = a.connect_as("red");
  CHECK(red->cluster().value().nodes.size() == 1);
  CHECK(red->drain_node("a", true).status().code() == StatusCode::kPermissionDenied);
  etcd.kill(0);
  const auto alone = await(a, [](const auto& state) { return !state.error.empty(); });
  CHECK_THAT(alone.error, Contains("127.0.0.1"));
  CHECK_THAT(red->cluster().value().error, Contains("admins see it"));
}

TEST_CASE("etcd is reached over TLS, and only the right one with the right certificate",
          "[integration][cluster]") {
  const TempDir dir;
  const auto certificate = [&](const std::string& name) {
    std::filesystem::create_directory(dir.path(name));
    TlsFiles files = test::make_certificate(dir.path(name));
    files.ca = files.cert;  // it is signed by itself
    return files;
  };
  const TlsFiles ours = certificate("ours"), others = certificate("others");
  const EtcdMembers etcd(1, ours);
  const auto settings = [](const TlsFiles& files, const std::string& ca) {
    return "cluster_tls_ca = '" + ca + "'\ncluster_tls_cert = '" + files.cert +
           "'\ncluster_tls_key = '" + files.key + "'\n";
  };
  Node a(etcd, "a", settings(ours, ours.ca));
  await(a, shared_by({"a"}));
  Node wrong_ca(etcd, "b", settings(ours, others.ca));
  await(wrong_ca, [](const auto& state) {
    return state.error.find("begin TLS") != std::string::npos &&
           state.error.find("verify") != std::string::npos;
  });
  Node wrong_certificate(etcd, "c", settings(others, ours.ca));
  const auto refused = await(wrong_certificate, [](const auto& now) { return !now.error.empty(); });
  CHECK(refused.state == "joining");
  CHECK(a.state().nodes.size() == 1);
}

TEST_CASE("a service without cluster_etcd is in no cluster", "[integration][cluster]") {
  const TempDir dir;
  const ServiceProcess service(dir);
  const auto client = service.connect();
  CHECK(client->cluster().value() == msg::ClusterState{});
  const Ran status = run({PRECISCTL_PATH, "--address", service.address(), "cluster", "status"});
  CHECK(status.exit_code == 0);
  CHECK_THAT(status.out, Contains("in no cluster"));
}

int main(int argc, char** argv) {
  if (!EtcdMembers::installed()) {
    std::printf("skipped: the Debian package etcd-server is not installed\n");
    return 77;
  }
  return run_test_cases(argc, argv);
}
