// Clients of a cluster send each call to the node that owns its shard.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cachesvc/cluster/base64.h"
#include "cachesvc/cluster/etcd.h"
#include "precis/block_digest.h"
#include "precis/shards.h"
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

// Three nodes that share the shards, and a client of the first.
struct Cluster {
  EtcdMembers etcd;
  Node a{etcd, "a"}, b{etcd, "b"}, c{etcd, "c"};
  std::mt19937 random{1};
  std::shared_ptr<Client> client = (await_all(), a.connect_as("red"));
  const Model model = client->register_model(tiny_model()).value();

  void await_all() {
    for (Node* const node : {&a, &b, &c}) await(*node, shared_by({"a", "b", "c"}));
  }
  Prompt prompt() {
    Prompt made{random_tokens(random, kTokens), {}};
    made.kv = random_kv(random, model.spec, 0, kTokens);
    return made;
  }
  std::vector<Prompt> prompts(std::size_t count) {
    std::vector<Prompt> made(count);
    for (Prompt& one : made) one = prompt();
    return made;
  }
  msg::SegmentInfo put(const Prompt& prompt, const PutOptions& options = keep_most()) const {
    auto stored = put_all(*client, model, prompt.tokens, prompt.kv, options);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return *stored;
  }
};

// The error if the client does not read the prompt's rows.
std::string read_error(Client& client, const Model& model, const Prompt& prompt) {
  const auto read = read_all(client, model, prompt.tokens);
  if (!read.ok()) return read.status().to_string();
  return rows_are_of(*read, {&prompt.kv}) ? "" : "other rows";
}

}  // namespace

TEST_CASE("what is put through one node is stored by the owners and read through any",
          "[integration][cluster]") {
  Cluster cluster;
  const auto prompts = cluster.prompts(24);
  std::set<std::string> ids;
  for (const Prompt& prompt : prompts) ids.insert(cluster.put(prompt).id.hex());
  for (const Node* const node : {&cluster.a, &cluster.b, &cluster.c}) CHECK(stored_at(*node) > 0);
  CHECK(stored_at(cluster.a) + stored_at(cluster.b) + stored_at(cluster.c) == prompts.size());
  for (const Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    const auto client = node->connect_as("red");
    for (const Prompt& prompt : prompts) REQUIRE(read_error(*client, cluster.model, prompt) == "");
  }

  // A match that is passed on is read from its owner.
  const auto other = cluster.c.connect_as("red");
  for (const Prompt& prompt : prompts) {
    const auto match = cluster.client->lookup(cluster.model, prompt.tokens).value();
    REQUIRE(match.shard);
    const auto passed = match_from_bytes(to_bytes(match)).value();
    CHECK(passed.shard == match.shard);
    CHECK(other->get(passed).value().wait().ok());
  }

  // Listings have the segments of all nodes, and calls about one find it.
  const auto listed = other->segments().value();
  CHECK(listed.size() == prompts.size());
  CHECK(std::ranges::is_sorted(listed, std::greater{}, &msg::SegmentInfo::created_unix_ms));
  CHECK(other->segments({}, 5).value().size() == 5);
  std::set<std::string> paged;
  msg::ListPrefixes request{.limit = 5};
  do {
    const auto page = other->segments_page(request).value();
    for (const msg::SegmentInfo& row : page.rows) CHECK(paged.insert(row.id.hex()).second);
    request.after = page.next;
  } while (!request.after.empty());
  CHECK(paged == ids);
  for (const msg::SegmentInfo& row : listed) {
    CHECK(other->segment(row.id).value().id == row.id);
    CHECK(other->find_segment(row.id.hex()).value().id == row.id);
    CHECK(other->trim_segment(row.id, Budget::ratio_ppm(500'000)).ok());
    CHECK(other->remove_segment(row.id, false).value().segments == 1);
    CHECK(other->remove_segment(row.id, false).status().code() == StatusCode::kNotFound);
  }
  CHECK(cluster.client->remove_model(cluster.model.fingerprint).ok());
}

TEST_CASE("a node refuses what another one owns, and names it", "[integration][cluster]") {
  Cluster cluster;
  const Prompt prompt = cluster.prompt();
  const auto asks = GENERATE(as<std::string>{}, "lookup", "put", "session");
  std::vector<std::string> serve, refuse;
  for (const Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    RawPeer peer;
    REQUIRE(peer.connect(node->address(), {"", "red", ""}).value().status.ok());
    msg::RequestBody body = msg::OpenSession{"chat", 60, {}};
    if (asks == "lookup") body = msg::Lookup{cluster.model.fingerprint, "", prompt.tokens};
    if (asks == "put") {
      msg::BeginPut put;
      put.model = cluster.model.fingerprint;
      put.tokens = prompt.tokens;
      body = put;
    }
    const Status status = peer.call(std::move(body)).value().status;
    if (status.ok()) {
      serve.push_back(node->address());
    } else {
      CHECK(status.code() == StatusCode::kMoved);
      refuse.push_back(status.message());
    }
  }
  REQUIRE(serve.size() == 1);
  for (const std::string& message : refuse) CHECK_THAT(message, Contains(serve[0]));
}

TEST_CASE("calls go on by themselves when a node dies, and use a new one",
          "[integration][cluster]") {
  Cluster cluster;
  const auto prompts = cluster.prompts(12);
  for (const Prompt& prompt : prompts) cluster.put(prompt);
  CHECK(cluster.b.kill() == -SIGKILL);
  for (const Prompt& prompt : prompts) {
    CHECK(cluster.client->lookup(cluster.model, prompt.tokens).ok());
    cluster.put(prompt);
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  CHECK(stored_at(cluster.a) + stored_at(cluster.c) == prompts.size());

  CHECK(cluster.a.kill() == -SIGKILL);  // the one that the client connected to
  cluster.b.start();
  cluster.a.start();
  cluster.await_all();
  for (const Prompt& prompt : prompts) {
    cluster.put(prompt);
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  Node d(cluster.etcd, "d");  // it does not know the model yet
  await(d, shared_by({"a", "b", "c", "d"}));
  for (const Prompt& prompt : cluster.prompts(24)) cluster.put(prompt);
  CHECK(stored_at(d) > 0);
}

TEST_CASE("calls that wait for a node that stands still go on at others",
          "[integration][cluster]") {
  Cluster cluster;
  const auto prompts = cluster.prompts(6);
  for (const Prompt& prompt : prompts) cluster.put(prompt);
  ConnectOptions red;
  red.tenant = "red";
  red.timeout_ms = 6000;  // more than the lease
  cluster.client = Client::connect(cluster.a.address(), red).value();
  CHECK(cluster.client->lookup(cluster.model, prompts[0].tokens).ok());
  ::kill(cluster.b.pid(), SIGSTOP);
  for (const Prompt& prompt : prompts) {
    CHECK(cluster.client->lookup(cluster.model, prompt.tokens).ok());
    cluster.put(prompt);
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  ::kill(cluster.b.pid(), SIGCONT);
  cluster.await_all();
  for (const Prompt& prompt : prompts) {
    cluster.put(prompt);
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
}

TEST_CASE("no call fails while nodes are drained and join", "[integration][cluster]") {
  Cluster cluster;
  std::atomic<bool> stop{false};
  std::atomic<int> puts{0};
  std::atomic<bool> has_failed{false};
  Status failed;  // read after the thread has ended
  std::thread load([&] {
    while (!stop && failed.ok()) {
      const Prompt prompt = cluster.prompt();
      failed =
          put_all(*cluster.client, cluster.model, prompt.tokens, prompt.kv, keep_most()).status();
      if (failed.ok()) failed = cluster.client->lookup(cluster.model, prompt.tokens).status();
      ++puts;
    }
    has_failed = !failed.ok();
  });
  const auto step = [&](const std::vector<std::string>& drain, const std::string& name) {
    CHECK(cluster.b.ctl(drain).exit_code == 0);
    await(cluster.b,
          [&](const auto& state) { return (shards_of(state, name) == 0) == (drain.size() == 2); });
    const int before = puts;
    while (puts < before + 20 && !has_failed) std::this_thread::yield();
  };
  step({"drain", "a"}, "a");
  CHECK(cluster.a.stop() == 0);
  cluster.a.start();
  step({"drain", "a", "--off"}, "a");
  step({"drain", "c"}, "c");
  stop = true;
  load.join();
  INFO(failed.to_string());
  CHECK(failed.ok());
}

TEST_CASE("a session lives at one node, with the paths that name it", "[integration][cluster]") {
  Cluster cluster;
  const auto other = cluster.c.connect_as("red");
  std::set<std::string> names;
  for (int n = 0; n < 12; ++n) {
    const std::string name = "chat-" + std::to_string(n);
    names.insert(name);
    REQUIRE(cluster.client->open_session(name, 600).ok());
    const Prompt prompt = cluster.prompt();
    PutOptions options = keep_most();
    options.session = name;
    const auto stored = cluster.put(prompt, options);
    CHECK(other->advance_session(name, stored.id).value().tip == stored.id);
    CHECK(other->session(name).value().tip == stored.id);
    LookupOptions of_session;
    of_session.session = name;
    CHECK(other->lookup(cluster.model, prompt.tokens, of_session).value().matched_tokens ==
          kTokens);
    CHECK(other->fork_session(name, "{" + name + "}/b").value().tip == stored.id);
    CHECK(other->pin_session("{" + name + "}/b", true).ok());
    CHECK(other->remove_session("{" + name + "}/b").ok());
    CHECK(other->set_budget({.scope = {{}, name}, .keep = Budget::ratio_ppm(500'000)}).ok());
    CHECK(cluster.client->budgets({}, name).value().effective.keep == Budget::ratio_ppm(500'000));
    const Status apart = other->fork_session(name, name + "/b").status();
    CHECK(apart.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(apart.message(), Contains("'{" + name + "}" + name + "/b'"));
  }
  // Some of these paths are at another node than the session.
  std::string error;
  for (int n = 0; error.empty() && n < 32; ++n) {
    const auto stored = cluster.put(cluster.prompt());
    const Status advanced = other->advance_session("chat-0", stored.id).status();
    if (advanced.code() == StatusCode::kNotFound) error = advanced.message();
  }
  CHECK_THAT(error, Contains("a turn must be put with the name of its session"));
  std::set<std::string> listed;
  const auto sessions = other->sessions().value();
  for (const msg::SessionRow& row : sessions) listed.insert(row.name);
  CHECK(listed == names);
}

TEST_CASE("beneath a fork in etcd, paths that begin alike are spread over the nodes",
          "[integration][cluster]") {
  Cluster cluster;
  auto prompts = cluster.prompts(24);
  const std::uint32_t block = cluster.model.spec.block_tokens;
  for (Prompt& prompt : prompts) {
    std::copy_n(prompts[0].tokens.begin(), block, prompt.tokens.begin());
  }
  cluster.put(prompts[0]);
  CHECK((stored_at(cluster.a) == 1) + (stored_at(cluster.b) == 1) + (stored_at(cluster.c) == 1) ==
        1);
  const Digest space = *cluster.client->cluster().value().space;
  const Digest first = block_digest(shard_root(space, cluster.model.fingerprint, ""),
                                    std::span(prompts[0].tokens).first(block));
  const std::string digest(reinterpret_cast<const char*>(first.bytes.data()), first.bytes.size());
  cluster::Etcd rows(cluster::parse_etcd_urls(cluster.etcd.urls()).value());
  const nlohmann::json forks = {
      {"format", 1},
      {"forks", nlohmann::json::array({nlohmann::json::array({cluster::to_base64(digest), 2})})}};
  REQUIRE(rows.write({"precis/precis/forks", forks.dump(), 0}).ok());
  for (Node* const node : {&cluster.a, &cluster.b, &cluster.c}) {
    await(*node, [&](const auto& state) {
      return state.forks == std::vector<msg::Fork>{{first, 2}} && state.error.empty();
    });
  }
  PutOptions whole = keep_most();
  whole.parent = SegmentId{};
  for (const Prompt& prompt : prompts) {  // the client does not know the fork yet
    cluster.put(prompt, whole);
    CHECK(read_error(*cluster.client, cluster.model, prompt) == "");
  }
  for (const Node* const node : {&cluster.a, &cluster.b, &cluster.c}) CHECK(stored_at(*node) > 1);
}

TEST_CASE("a block that many prompts begin with becomes a fork by itself",
          "[integration][cluster]") {
  Cluster cluster;
  Prompt prompt = cluster.prompt();
  PutOptions whole = keep_most();
  whole.parent = SegmentId{};
  const auto put_another = [&] {
    const auto end = random_tokens(cluster.random, cluster.model.spec.block_tokens);
    std::ranges::copy(end, prompt.tokens.end() - cluster.model.spec.block_tokens);
    cluster.put(prompt, whole);
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (cluster.client->cluster().value().forks.empty()) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    put_another();
  }
  CHECK(cluster.client->cluster().value().forks[0].blocks == 3);
  const auto one_has_none = [&] {
    const std::array stored{stored_at(cluster.a), stored_at(cluster.b), stored_at(cluster.c)};
    return std::ranges::find(stored, 0u) != stored.end();
  };
  while (one_has_none()) {  // the other nodes learn of the fork a moment later
    REQUIRE(std::chrono::steady_clock::now() < until);
    put_another();
  }
}

TEST_CASE("a program in C stores and reads through two nodes", "[integration][cluster]") {
  const EtcdMembers etcd;
  Node a(etcd, "a"), b(etcd, "b");
  for (Node* const node : {&a, &b}) await(*node, shared_by({"a", "b"}));
  const Ran ran = run({C_TEST_PATH, "precis://" + a.address() + "," + b.address() + "/", "red"});
  INFO(ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(stored_at(a) + stored_at(b) == 19);  // one was removed
  CHECK(stored_at(a) > 0);
  CHECK(stored_at(b) > 0);
}

TEST_CASE("a client is given the addresses of several nodes, and needs one that answers",
          "[integration][cluster]") {
  Cluster cluster;
  const Prompt prompt = cluster.prompt();
  cluster.put(prompt);
  ConnectOptions red;
  red.tenant = "red";
  for (const std::string& address :
       {"precis://127.0.0.1:1," + cluster.b.address() + "/",
        cluster.a.address() + "," + cluster.c.address(), "precis://" + cluster.a.address()}) {
    const auto client = Client::connect(address, red).value();
    CHECK(read_error(*client, cluster.model, prompt) == "");
  }
  const Status none = Client::connect("127.0.0.1:1,127.0.0.1:2", red).status();
  CHECK(none.code() == StatusCode::kUnavailable);
  CHECK_THAT(none.message(),
             Contains("none of the 2 addresses answers; the first error: connect to 127.0.0.1:1"));
  for (const char* typo : {",/", ",127.0.0.1:2480x/", ",127.0.0.1"}) {
    const Status wrong = Client::connect("precis://" + cluster.a.address() + typo, red).status();
    CHECK(wrong.code() == StatusCode::kInvalidArgument);
  }
}
