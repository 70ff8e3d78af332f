// Nodes that share a storage: what they acknowledge at "shared" outlives them. The cases run with
// each kind of storage.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "cachesvc/catalog/catalog_keys.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/shared_cluster.h"
#include "tests/integration/sweep.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

std::string named(const std::string& cluster) {
  return nodes_storage->node_settings() + "cluster_name = '" + cluster + "'\n";
}

}  // namespace

TEST_CASE("what is acknowledged at shared outlives a node and its disk", "[integration][cluster]") {
  Cluster cluster("outlives");
  const auto prompts = cluster.put_some(24, Durability::kShared);
  CHECK(cluster.b.kill() == -SIGKILL);
  for (const Prompt& prompt : prompts) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  cluster.b.lose_disk();
  cluster.b.start();
  cluster.await_all();
  for (const Prompt& prompt : prompts) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
}

TEST_CASE("output projections that one node is sent are used by all nodes",
          "[integration][cluster]") {
  Cluster cluster("projections");
  ModelSpec spec = tiny_model();
  spec.revision = "with projections";
  const std::vector<float> ones(spec.num_q_heads * spec.head_dim * 8, 1.0f);
  const std::vector<HeadsView> o_proj(
      spec.num_layers,
      HeadsView::packed(ones.data(), spec.num_q_heads, spec.head_dim, 8, Dtype::kF32));
  const Model model = cluster.client->register_model(spec, o_proj).value();
  REQUIRE(cluster.b.stop() == 0);
  cluster.b.lose_disk();
  cluster.b.start();
  cluster.await_all();
  PutOptions how = keep_most();
  how.recipe = "criticalkv";
  for (Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    const auto owns = [&](const Prompt& prompt) {
      const auto match = cluster.client->lookup(model, prompt.tokens).value();
      const msg::ClusterState state = node->state();
      return state.nodes[state.owners[*match.shard]].name == node->name();
    };
    Prompt prompt = cluster.prompt();
    while (!owns(prompt)) prompt = cluster.prompt();
    prompt.kv = random_kv(cluster.random, spec, 0, kTokens, /*num_queries=*/64);
    const auto stored = put_all(*cluster.client, model, prompt.tokens, prompt.kv, how);
    INFO(node->name() << ": " << stored.status().to_string());
    CHECK(stored.ok());
  }
}

TEST_CASE("a put that names no recipe finds the projections that another node was just sent",
          "[integration][cluster]") {
  Cluster cluster("defaults");
  msg::SetBudget change;
  change.recipe = "criticalkv";
  REQUIRE(cluster.client->set_budget(change).ok());
  ModelSpec spec = tiny_model();
  const std::vector<float> ones(spec.num_q_heads * spec.head_dim * 8, 1.0f);
  const std::vector<HeadsView> o_proj(
      spec.num_layers,
      HeadsView::packed(ones.data(), spec.num_q_heads, spec.head_dim, 8, Dtype::kF32));
  PutOptions how = keep_most();
  how.recipe = "";
  for (int i = 0; i < 12; ++i) {
    spec.revision = "revision " + std::to_string(i);
    const Model model = cluster.client->register_model(spec, o_proj).value();
    Prompt prompt = cluster.prompt();
    prompt.kv = random_kv(cluster.random, spec, 0, kTokens, /*num_queries=*/64);
    const auto stored = put_all(*cluster.client, model, prompt.tokens, prompt.kv, how);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    CHECK_THAT(cluster.client->segment(stored->id)->recipe, Contains("two_stage"));
  }
}

TEST_CASE("what only a node's disk has is there again when the node is", "[integration][cluster]") {
  EtcdMembers etcd;
  Node node(etcd, "a", named("alone"), 2);
  const auto loaded = [](const msg::ClusterState& state) {
    return shared_by({"a"})(state) && Cluster::is_loaded(state);
  };
  await(node, loaded);
  std::mt19937 random(3);
  auto client = node.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  const std::vector<TokenId> tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, tiny_model(), 0, kTokens);
  nodes_storage->signal(SIGSTOP);
  const Status put = put_all(*client, model, tokens, kv, keep_most(), Durability::kWal).status();
  INFO(put.to_string());
  REQUIRE(put.ok());
  CHECK(node.state().unshared_bytes > 0);
  CHECK(node.kill() == -SIGKILL);
  nodes_storage->signal(SIGCONT);
  node.start();
  await(node, loaded);
  client = node.connect_as("red");
  const auto read = read_all(*client, model, tokens);
  INFO(read.status().to_string());
  REQUIRE(read.ok());
  CHECK(rows_are_of(*read, {&kv}));
  await(node, [](const msg::ClusterState& state) { return state.unshared_bytes == 0; });
}

TEST_CASE("what a node leaves that dies while it stores is swept, and nothing else",
          "[integration][cluster]") {
  Cluster cluster("orphans");
  const auto prompts = cluster.put_some(12, Durability::kShared);
  cluster.put_some(12, Durability::kWal);
  CHECK(cluster.b.kill() == -SIGKILL);  // while it copies them
  cluster.await_loaded({"a", "c"});
  std::set<std::uint32_t> shards;
  for (const Prompt& prompt : prompts) {
    shards.insert(cluster.client->lookup(cluster.model, prompt.tokens).value().shard.value());
  }
  REQUIRE(cluster.a.stop() == 0);
  REQUIRE(cluster.c.stop() == 0);
  const auto tier = nodes_storage->connect("orphans");
  std::vector<std::string> orphans;
  for (const std::uint32_t shard : shards) {
    SegmentRow row;
    row.shard = shard;
    row.plan = {1, 1, {1}};
    orphans.push_back(object_name(row, 0));
    REQUIRE(tier->write_object(orphans.back(), std::array<std::byte, 3>{}).ok());
  }
  CHECK(sweep(*tier, shards) >= orphans.size());
  std::array<std::byte, 3> into{};
  for (const std::string& orphan : orphans) {
    CHECK(tier->read_object(orphan, into).code() == StatusCode::kNotFound);
  }
  for (Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    node->lose_disk();
    node->start();
  }
  cluster.await_all();
  const auto client = cluster.a.connect_as("red");
  for (const Prompt& prompt : prompts) CHECK(read_error(*client, cluster.model, prompt) == "");
}

TEST_CASE("a cluster does not use the pool of another one of its name", "[integration][cluster]") {
  const auto tier = nodes_storage->connect("twice");
  EtcdMembers etcd, other_etcd;
  Node node(etcd, "a", named("twice"), 2);
  await(node, is_loaded);
  const auto marks = tier->marks(std::array{0u}).value();
  Node other(other_etcd, "a", named("twice"), 2);
  const auto state =
      await(other, [](const msg::ClusterState& now) { return !now.shared_error.empty(); });
  CHECK_THAT(state.shared_error, Contains("the data of another cluster of this name"));
  CHECK(state.loading == limits::kShards);
  CHECK(tier->marks(std::array{0u}).value() == marks);
  // A node that comes to the first cluster later becomes a member.
  node.stop();
  Node later(etcd, "b", named("twice"), 2);
  await(later, is_loaded);
}

TEST_CASE("a node that does not share what the others share does not join",
          "[integration][cluster]") {
  EtcdMembers etcd;
  Node first(etcd, "a", named("alike"), 2);
  await(first, is_loaded);
  Node other(etcd, "b", "cluster_name = 'alike'\n", 2);
  await(other, [](const msg::ClusterState& state) { return !state.error.empty(); });
  const msg::ClusterState state = other.state();
  CHECK(state.state == "joining");
  CHECK_THAT(state.error, Contains("and this one shares no storage") &&
                              Contains("all nodes need the same cluster_ceph_*"));
  CHECK(shards_of(first.state(), "b") == 0);
}

TEST_CASE("a node that stood still while others took its shards changes nothing in them",
          "[integration][cluster]") {
  Cluster cluster("fenced");
  const auto prompts = cluster.put_some(12, Durability::kShared);
  const auto uncopied = cluster.put_some(12, Durability::kWal);
  ::kill(cluster.b.pid(), SIGSTOP);
  cluster.await_loaded({"a", "c"});
  const auto first_half = std::span(prompts).first(6), second_half = std::span(prompts).last(6);
  for (const Prompt& prompt : first_half) {
    const auto match = cluster.client->lookup(cluster.model, prompt.tokens).value();
    REQUIRE(match.links.size() == 1);
    CHECK(cluster.client->remove_segment(match.links[0].segment.id, false).ok());
  }
  ::kill(cluster.b.pid(), SIGCONT);
  cluster.await_all();
  for (const Prompt& prompt : second_half) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  const auto no_tokens = [&](const Prompt& prompt) {
    return read_error(*cluster.client, cluster.model, prompt) == "0 tokens are matched";
  };
  for (const Prompt& prompt : first_half) CHECK(no_tokens(prompt));
  for (const Prompt& prompt : uncopied) {
    CHECK((no_tokens(prompt) || read_error(*cluster.client, cluster.model, prompt).empty()));
  }
}

TEST_CASE("budgets are applied to the shards of a node that died before",
          "[integration][cluster]") {
  Cluster cluster("applied");
  cluster.put_some(12, Durability::kShared);
  REQUIRE(stored_at(cluster.c) > 0);
  cluster.c.kill();
  // The other two apply the budgets to what they store before they take the shards of c.
  RawPeer peer;
  REQUIRE(peer.connect(cluster.a.address(), {"", "red", ""}).value().status.ok());
  msg::SetBudget change;
  change.keep = Budget::ratio_ppm(300'000);
  change.apply_to_stored = true;
  REQUIRE(peer.call(change).value().status.ok());
  cluster.await_loaded({"a", "b"});
  const auto untrimmed = [&] {
    const auto segments = cluster.client->segments().value();
    REQUIRE(segments.size() == 12);
    return std::ranges::count_if(segments, [&](const msg::SegmentInfo& segment) {
      return cluster.client->segment(segment.id)->trimmed != change.keep;
    });
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (untrimmed() > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  CHECK(untrimmed() == 0);
}

namespace {

// Puts whose layers the nodes have, and that are not committed.
std::vector<Put> begin_some(Cluster& cluster, const std::vector<Prompt>& prompts) {
  std::vector<Put> puts;
  for (const Prompt& prompt : prompts) {
    puts.push_back(cluster.client->begin_put(cluster.model, prompt.tokens, keep_most()).value());
    for (std::uint32_t l = 0; l < prompt.kv.layers.size(); ++l) {
      REQUIRE(puts.back().layer(l, prompt.kv.layers[l].push()).ok());
    }
  }
  return puts;
}

// Waits until the others have loaded the shards of `a`.
void await_drained(Cluster& cluster) {
  for (Node* const node : {&cluster.b, &cluster.c}) {
    await(*node, [](const msg::ClusterState& state) {
      return shards_of(state, "a") == 0 && Cluster::is_loaded(state);
    });
  }
}

std::vector<Prompt> prompts_of(Cluster& cluster, std::size_t count) {
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < count; ++i) prompts.push_back(cluster.prompt());
  return prompts;
}

}  // namespace

TEST_CASE("a put that is under way when its node is drained is stored", "[integration][cluster]") {
  Cluster cluster("underway", "", /*lease=*/300);
  const auto prompts = prompts_of(cluster, 12);
  auto puts = begin_some(cluster, prompts);
  CHECK(cluster.b.ctl({"drain", "a"}).exit_code == 0);
  await(cluster.a, [](const auto& state) { return shards_of(state, "a") == 0; });
  for (Put& put : puts) {
    const Status stored = put.commit(Durability::kShared).status();
    CHECK(stored.to_string() == "ok");
  }
  await_drained(cluster);
  for (const Prompt& prompt : prompts) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
}

TEST_CASE("a drain waits a while at most for a put, and its client is told to put again",
          "[integration][cluster]") {
  Cluster cluster("stalled");
  const auto prompts = prompts_of(cluster, 12);
  auto puts = begin_some(cluster, prompts);
  CHECK(cluster.b.ctl({"drain", "a"}).exit_code == 0);
  await_drained(cluster);
  std::size_t refused = 0;
  for (std::size_t i = 0; i < puts.size(); ++i) {
    const Status stored = puts[i].commit(Durability::kShared).status();
    if (stored.ok()) continue;
    ++refused;
    CHECK(stored.code() == StatusCode::kUnavailable);
    CHECK_THAT(stored.message(),
               Contains("another node took the path's shard") && Contains("put again"));
    CHECK_FALSE(puts[i].commit(Durability::kShared).ok());
    cluster.put(prompts[i], Durability::kShared);
  }
  CHECK(refused > 0);
  CHECK(refused < puts.size());
  for (const Prompt& prompt : prompts) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
}
