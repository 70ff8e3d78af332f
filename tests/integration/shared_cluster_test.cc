// Nodes that share a storage: what they acknowledge at "shared" outlives them.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "tests/catch_runner.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/raw_peer.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint32_t kTokens = 192;  // three blocks

struct Prompt {
  std::vector<TokenId> tokens;
  Kv kv;
};

// The nodes of all test cases share one Ceph, in which each cluster has a name space of its own.
// main() makes it.
std::unique_ptr<CephCluster> ceph;

std::string ceph_settings(const std::string& more = "") {
  return "cluster_ceph_conf = '" + ceph->conf() + "'\ncluster_ceph_user = '" + ceph->user() +
         "'\n" + more;
}

struct Cluster {
  explicit Cluster(const std::string& name, const std::string& settings = "")
      : more(ceph_settings("cluster_name = '" + name + "'\n" + settings)) {
    await_all();
  }
  const std::string more;
  EtcdMembers etcd;
  Node a{etcd, "a", more, 2}, b{etcd, "b", more, 2}, c{etcd, "c", more, 2};
  std::mt19937 random{1};
  std::shared_ptr<Client> client = a.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();

  static bool is_loaded(const msg::ClusterState& state) {
    return state.shared && state.loading == 0 && state.shared_error.empty();
  }
  void await_loaded(std::vector<std::string> names) {
    for (Node* const node : {&a, &b, &c}) {
      if (std::ranges::find(names, node->name()) == names.end()) continue;
      await(*node, [&](const msg::ClusterState& state) {
        return shared_by(names)(state) && is_loaded(state);
      });
    }
  }
  void await_all() { await_loaded({"a", "b", "c"}); }
  Prompt prompt() {
    Prompt made{random_tokens(random, kTokens), {}};
    made.kv = random_kv(random, tiny_model(), 0, kTokens);
    return made;
  }
  Status try_put(const Prompt& prompt, Durability durability, const std::string& session = "",
                 SegmentId* id = nullptr) {
    PutOptions options = keep_most();
    options.session = session;
    auto stored = put_all(*client, model, prompt.tokens, prompt.kv, options, durability);
    if (stored.ok() && id != nullptr) *id = stored->id;
    return stored.status();
  }
  SegmentId put(const Prompt& prompt, Durability durability, const std::string& session = "") {
    SegmentId id;
    const Status status = try_put(prompt, durability, session, &id);
    INFO(status.to_string());
    REQUIRE(status.ok());
    return id;
  }
  std::vector<Prompt> put_some(std::size_t count, Durability durability) {
    std::vector<Prompt> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(prompt());
      put(made.back(), durability);
    }
    return made;
  }
};

// The error if the client does not read the prompt's rows.
std::string read_error(Client& client, const Model& model, const Prompt& prompt,
                       const std::string& session = "") {
  LookupOptions options;
  options.session = session;
  const auto match = client.lookup(model, prompt.tokens, options);
  if (!match.ok()) return match.status().to_string();
  if (match->matched_tokens != prompt.tokens.size()) {
    return std::to_string(match->matched_tokens) + " tokens are matched";
  }
  if (!session.empty()) return client.get(*match).status().message();
  const auto read = read_all(client, model, prompt.tokens);
  if (!read.ok()) return read.status().to_string();
  return rows_are_of(*read, {&prompt.kv}) ? "" : "other rows";
}

}  // namespace

TEST_CASE("what is acknowledged at shared outlives a node and its disk",
          "[integration][cluster][ceph]") {
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

TEST_CASE("a session goes on at its turn when its node is lost", "[integration][cluster][ceph]") {
  Cluster cluster("sessions");
  std::vector<std::pair<std::string, SegmentId>> tips;
  std::vector<Prompt> prompts;
  for (int n = 0; n < 9; ++n) {
    const std::string name = "chat-" + std::to_string(n);
    REQUIRE(cluster.client->open_session(name, 600).ok());
    prompts.push_back(cluster.prompt());
    const SegmentId tip = cluster.put(prompts.back(), Durability::kShared, name);
    REQUIRE(cluster.client->advance_session(name, tip).ok());
    tips.emplace_back(name, tip);
  }
  REQUIRE(cluster.client->remove_session("chat-8").ok());
  const auto check_all = [&] {
    for (int n = 0; n < 8; ++n) {
      const auto session = cluster.client->session(tips[n].first);
      INFO(session.status().to_string());
      REQUIRE(session.ok());
      CHECK(session->tip == tips[n].second);
      CHECK(session->turns == 1);
      CHECK(read_error(*cluster.client, cluster.model, prompts[n], tips[n].first) == "");
    }
    CHECK(cluster.client->session("chat-8").status().code() == StatusCode::kNotFound);
  };
  CHECK(cluster.b.kill() == -SIGKILL);
  check_all();
  cluster.b.start();
  cluster.await_all();
  check_all();
}

TEST_CASE("a drained node hands over all that it stored", "[integration][cluster][ceph]") {
  Cluster cluster("drained");
  const auto prompts = cluster.put_some(24, Durability::kWal);
  CHECK(cluster.b.ctl({"drain", "b"}).exit_code == 0);
  const auto all_are_read = [&] {
    for (const Prompt& prompt : prompts) {
      CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
    }
  };
  await(cluster.a, [&](const auto& state) { return shards_of(state, "b") == 0; });
  all_are_read();
  CHECK(stored_at(cluster.b) == 0);
  CHECK(cluster.b.stop() == 0);
  cluster.b.lose_disk();
  cluster.b.start();
  CHECK(cluster.b.ctl({"drain", "b", "--off"}).exit_code == 0);
  cluster.await_all();
  all_are_read();
  CHECK(stored_at(cluster.b) > 0);
}

TEST_CASE("a node that returns has nothing that was removed meanwhile",
          "[integration][cluster][ceph]") {
  Cluster cluster("returns");
  const auto prompts = cluster.put_some(24, Durability::kShared);
  CHECK(cluster.b.kill() == -SIGKILL);
  for (const Prompt& prompt : prompts) {
    const auto match = cluster.client->lookup(cluster.model, prompt.tokens);
    REQUIRE(match.ok());
    REQUIRE(match->links.size() == 1);
    CHECK(cluster.client->remove_segment(match->links[0].segment.id, false).ok());
  }
  cluster.b.start();
  cluster.await_all();
  for (const Prompt& prompt : prompts) {
    CHECK(cluster.client->lookup(cluster.model, prompt.tokens)->matched_tokens == 0);
  }
  CHECK(stored_at(cluster.b) == 0);
}

TEST_CASE("what only a node's disk has is there again when the node is",
          "[integration][cluster][ceph]") {
  EtcdMembers etcd;
  Node node(etcd, "a", ceph_settings("cluster_name = 'alone'\n"), 2);
  const auto loaded = [](const msg::ClusterState& state) {
    return shared_by({"a"})(state) && Cluster::is_loaded(state);
  };
  await(node, loaded);
  std::mt19937 random(3);
  auto client = node.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  const std::vector<TokenId> tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, tiny_model(), 0, kTokens);
  for (std::size_t osd = 0; osd < 3; ++osd) ::kill(ceph->osd_pid(osd), SIGSTOP);
  const Status put = put_all(*client, model, tokens, kv, keep_most(), Durability::kWal).status();
  INFO(put.to_string());
  REQUIRE(put.ok());
  CHECK(node.state().unshared_bytes > 0);
  CHECK(node.kill() == -SIGKILL);
  for (std::size_t osd = 0; osd < 3; ++osd) ::kill(ceph->osd_pid(osd), SIGCONT);
  node.start();
  await(node, loaded);
  client = node.connect_as("red");
  const auto read = read_all(*client, model, tokens);
  INFO(read.status().to_string());
  REQUIRE(read.ok());
  CHECK(rows_are_of(*read, {&kv}));
  await(node, [](const msg::ClusterState& state) { return state.unshared_bytes == 0; });
}

TEST_CASE("a put may be committed again and aborted while it waits for its copy",
          "[integration][cluster][ceph]") {
  EtcdMembers etcd;
  Node node(etcd, "a", ceph_settings("cluster_name = 'again'\n"), 2);
  await(node, [](const msg::ClusterState& state) {
    return shared_by({"a"})(state) && Cluster::is_loaded(state);
  });
  const auto client = node.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(3);
  RawPeer peer;
  Login red;
  red.tenant = "red";
  REQUIRE(peer.connect(node.address(), red).value().status.ok());
  msg::BeginPut begin;
  begin.model = model.fingerprint;
  begin.tokens = random_tokens(random, kTokens);
  const auto begun = std::get<msg::PutBegun>(peer.call(begin).value().body);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  msg::PushLayer push;
  push.put = begun.put;
  push.head_count = model.spec.num_kv_heads;
  push.token_count = kTokens;
  push.dtype = model.spec.dtype;
  push.keys = peer.expose(kv.layers[0].keys.bytes.size());
  push.values = peer.expose(kv.layers[0].values.bytes.size());
  push.keys_head_stride = push.values_head_stride = kv.layers[0].keys.view.head_bytes();
  for (push.layer = 0; push.layer < model.spec.num_layers; ++push.layer) {
    REQUIRE(peer.call(push).value().status.ok());
  }
  for (std::size_t osd = 0; osd < 3; ++osd) ::kill(ceph->osd_pid(osd), SIGSTOP);
  const msg::CommitPut commit{begun.put, Durability::kShared};
  for (std::uint64_t id = 1000; id < 1003; ++id) peer.send(encode(msg::Request{id, commit}));
  peer.send(encode(msg::Request{1003, msg::AbortPut{begun.put}}));
  while (node.state().unshared_bytes == 0) std::this_thread::yield();
  for (std::size_t osd = 0; osd < 3; ++osd) ::kill(ceph->osd_pid(osd), SIGCONT);
  int stored = 0;
  for (int n = 0; n < 4; ++n) {
    const auto reply = peer.receive();
    REQUIRE(reply.ok());
    if (reply->id != 1003 && reply->status.ok()) ++stored;
  }
  CHECK(stored == 3);
  CHECK(client->lookup(model, begin.tokens)->matched_tokens == kTokens);
}

TEST_CASE("no call fails while nodes that share a storage are drained and join",
          "[integration][cluster][ceph]") {
  Cluster cluster("moves");
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::string failed;  // read after the thread has ended
  std::thread load([&] {
    std::vector<Prompt> prompts;
    while (!stop && failed.empty()) {
      prompts.push_back(cluster.prompt());
      const Status put = cluster.try_put(prompts.back(), Durability::kShared);
      if (!put.ok()) failed = "put: " + put.to_string();
      const Prompt& earlier = prompts[static_cast<std::size_t>(rounds) % prompts.size()];
      if (failed.empty()) failed = read_error(*cluster.client, cluster.model, earlier);
      ++rounds;
    }
  });
  const auto step = [&](const std::vector<std::string>& drain, const std::string& name) {
    CHECK(cluster.b.ctl(drain).exit_code == 0);
    await(cluster.b,
          [&](const auto& state) { return (shards_of(state, name) == 0) == (drain.size() == 2); });
    const int before = rounds;
    while (rounds < before + 20 && failed.empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  step({"drain", "a"}, "a");
  step({"drain", "a", "--off"}, "a");
  step({"drain", "c"}, "c");
  stop = true;
  load.join();
  CHECK(failed == "");
}

TEST_CASE("puts at shared go on when an OSD of Ceph dies", "[integration][cluster][ceph]") {
  Cluster cluster("osds");
  ceph->kill_osd(1);
  const auto prompts = cluster.put_some(6, Durability::kShared);
  ceph->start_osd(1);
  ceph->await_osds(3);
  CHECK(cluster.b.kill() == -SIGKILL);
  for (const Prompt& prompt : prompts) {
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
}

std::uint64_t gets_at(const Node& node) {
  const msg::Stats stats = node.connect_as("red")->stats().value();
  const auto gets = std::ranges::find(stats.rows, "precis_gets_total", &msg::Stat::name);
  return static_cast<std::uint64_t>(gets->value);
}

TEST_CASE("a prefix that is read often is served by further nodes too",
          "[integration][cluster][ceph]") {
  Cluster cluster("hot", "cluster_hot_bytes_per_s = 1\n");
  const Prompt prompt = cluster.prompt();
  const SegmentId id = cluster.put(prompt, Durability::kShared);
  CHECK(cluster.client->lookup(cluster.model, prompt.tokens).value().also_at.empty());
  REQUIRE(read_error(*cluster.client, cluster.model, prompt) == "");
  const auto match = cluster.client->lookup(cluster.model, prompt.tokens).value();
  CHECK(match.also_at.size() == 2);
  for (int i = 0; i < 60; ++i) REQUIRE(read_error(*cluster.client, cluster.model, prompt) == "");
  std::vector<std::uint64_t> gets;
  Node* owner = nullptr;
  for (Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    gets.push_back(gets_at(*node));
    CHECK(gets.back() > 5);
    if (stored_at(*node) > 0) owner = node;
  }
  REQUIRE(owner != nullptr);
  CHECK(stored_at(cluster.a) + stored_at(cluster.b) + stored_at(cluster.c) == 1);

  // Only its tenant gets it, wherever it asks.
  for (int i = 0; i < 10; ++i) {
    const auto stolen = cluster.a.client().get(match);
    CHECK_FALSE((stolen.ok() && stolen->wait().ok()));
  }
  // A trimmed one is another version.
  const auto trimmed =
      cluster.client->trim_segment(id, Budget::ratio_ppm(300'000), Durability::kShared);
  REQUIRE(trimmed.ok());
  const auto smaller = cluster.client->lookup(cluster.model, prompt.tokens).value();
  CHECK(smaller.plan.total() < match.plan.total());
  for (int i = 0; i < 20; ++i) {
    const auto got = cluster.client->get(smaller);
    REQUIRE(got.ok());
    REQUIRE(got->wait().ok());
  }
  // The owner serves it if another node does not any more.
  Node& other = owner == &cluster.a ? cluster.b : cluster.a;
  const auto client = owner->connect_as("red");
  other.kill();
  for (int i = 0; i < 20; ++i) {
    const auto got = client->get(smaller);
    REQUIRE(got.ok());
    REQUIRE(got->wait().ok());
  }
}

// The node owns shards, and has loaded all.
bool is_loaded(const msg::ClusterState& now) {
  return now.loading == 0 && now.state == "member" && shards_of(now, now.node) > 0;
}

TEST_CASE("nodes whose etcd is older than the shared storage agree on a new table and go on",
          "[integration][cluster][ceph]") {
  const auto tier = connect_rados(ceph->settings("behind")).value();
  const ShardMark mark{1ull << 40, 0, true, "disk", "instance"};
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{0, {}, mark}}).ok());
  EtcdMembers etcd;
  Node node(etcd, "a", ceph_settings("cluster_name = 'behind'\n"), 2);
  await(node, is_loaded);
  CHECK(tier->marks(std::array{0u}).value().front()->epoch > mark.epoch);
}

TEST_CASE("a cluster does not use the pool of another one of its name",
          "[integration][cluster][ceph]") {
  const auto tier = connect_rados(ceph->settings("twice")).value();
  EtcdMembers etcd, other_etcd;
  Node node(etcd, "a", ceph_settings("cluster_name = 'twice'\n"), 2);
  await(node, is_loaded);
  const auto marks = tier->marks(std::array{0u}).value();
  Node other(other_etcd, "a", ceph_settings("cluster_name = 'twice'\n"), 2);
  const auto state =
      await(other, [](const msg::ClusterState& now) { return !now.shared_error.empty(); });
  CHECK_THAT(state.shared_error, Contains("the data of another cluster of this name"));
  CHECK(state.loading == limits::kShards);
  CHECK(tier->marks(std::array{0u}).value() == marks);
  // A node that comes later to the first cluster is one of it.
  node.stop();
  Node later(etcd, "b", ceph_settings("cluster_name = 'twice'\n"), 2);
  await(later, is_loaded);
}

TEST_CASE("shared needs storage that nodes share", "[integration][cluster][ceph]") {
  EtcdMembers etcd;
  Node node(etcd, "a");
  await(node, shared_by({"a"}));
  std::mt19937 random(3);
  const auto client = node.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();
  const Status refused =
      put_all(*client, model, random_tokens(random, kTokens),
              random_kv(random, tiny_model(), 0, kTokens), keep_most(), Durability::kShared)
          .status();
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK_THAT(refused.message(), Contains("cluster_ceph_conf"));
}

int main(int argc, char** argv) {
  if (!CephCluster::available() || !EtcdMembers::installed()) {
    std::printf("skipped: install ceph-mon, ceph-osd and etcd-server, and run it as root\n");
    return 77;
  }
  ceph = std::make_unique<CephCluster>();
  const int failed = run_test_cases(argc, argv);
  ceph.reset();
  return failed;
}
