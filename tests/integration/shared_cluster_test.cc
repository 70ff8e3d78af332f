// Nodes that share a Ceph: cases that shared_cluster_cases.cc does not have.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "client/src/get_plan.h"
#include "tests/catch_runner.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/shared_cluster.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

std::unique_ptr<CephCluster> ceph;

class CephStorage final : public NodesStorage {
 public:
  std::string node_settings() const override {
    return "cluster_ceph_conf = '" + ceph->conf() + "'\ncluster_ceph_user = '" + ceph->user() +
           "'\n";
  }
  std::unique_ptr<SharedTier> connect(const std::string& cluster_name) const override {
    return connect_rados(ceph->settings(cluster_name)).value();
  }
  void signal(int number) const override {
    for (std::size_t osd = 0; osd < 3; ++osd) ::kill(ceph->osd_pid(osd), number);
  }
};

std::string ceph_settings(const std::string& more) { return nodes_storage->node_settings() + more; }

}  // namespace

std::unique_ptr<NodesStorage> precis::testing::nodes_storage;

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
  nodes_storage->signal(SIGSTOP);
  const msg::CommitPut commit{begun.put, Durability::kShared};
  for (std::uint64_t id = 1000; id < 1003; ++id) peer.send(encode(msg::Request{id, commit}));
  peer.send(encode(msg::Request{1003, msg::AbortPut{begun.put}}));
  while (node.state().unshared_bytes == 0) std::this_thread::yield();
  nodes_storage->signal(SIGCONT);
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

// Gets all of the match at that node, as if its last segment had been found `ms_later`.
Status get_at(const Node& node, const LookupMatch& match, std::uint64_t ms_later) {
  RawPeer peer;
  PRECIS_TRY(peer.connect(node.address(), {"test", "red", ""}).status());
  PRECIS_ASSIGN(const GetPlan plan, plan_get(match, Budget::all(), {}));
  msg::Get get = get_request(plan, peer.expose(plan.capacity_bytes));
  get.shard = match.shard;
  get.links.back().created_unix_ms += ms_later;
  PRECIS_ASSIGN(const msg::Reply reply, peer.call(get));
  return reply.status;
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

  Node& other = owner == &cluster.a ? cluster.b : cluster.a;
  CHECK(get_at(other, match, 0).ok());
  CHECK(get_at(other, match, 1).code() == StatusCode::kNotFound);  // no version of that time
  CHECK(get_at(*owner, match, 1).ok());                            // the owner knows which is meant

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
  // The owner serves it if another node stands still, or is gone.
  const auto client = owner->connect_as("red")->with_deadline(8000);
  const auto read_some = [&] {
    for (int i = 0; i < 20; ++i) {
      const auto got = client->get(smaller);
      REQUIRE(got.ok());
      REQUIRE(got->wait().ok());
    }
  };
  ::kill(other.pid(), SIGSTOP);
  read_some();
  other.kill();
  read_some();
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
  nodes_storage = std::make_unique<CephStorage>();
  const int failed = run_test_cases(argc, argv);
  ceph.reset();
  return failed;
}
