// Which node a client sends a call to.
#include "client/src/cluster_map.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "client/src/nodes.h"
#include "precis/block_digest.h"
#include "tests/unit/client/fake_server.h"

namespace {

using namespace precis;
using namespace precis::testing;

const Digest kSpace = shard_space("red", ""), kModel{};

// Two nodes: "a" owns the shards below 8,000, "b" the others, and nobody shard 9,000.
msg::ClusterState told() {
  msg::ClusterState state;
  state.name = "c";
  state.state = "member";
  state.space = kSpace;
  state.nodes = {{"a", "10.0.0.1:7470", "", 1, false, true, 0},
                 {"b", "10.0.0.2:7470", "", 1, false, true, 0}};
  for (std::uint32_t s = 0; s < kShards; ++s) state.owners.push_back(s < 8000 ? 0 : 1);
  state.owners[9000] = ~0u;
  return state;
}

TEST_CASE("a shard's calls go to its owner, if that is live", "[client]") {
  msg::ClusterState state = told();
  const ClusterMap map = ClusterMap::from(state).value();
  CHECK(map.owner(7999).value() == "10.0.0.1:7470");
  CHECK(map.owner(8000).value() == "10.0.0.2:7470");
  CHECK(map.owner(9000).status().code() == StatusCode::kUnavailable);
  CHECK(map.addresses() == std::vector<std::string>{"10.0.0.1:7470", "10.0.0.2:7470"});
  state.nodes[1].live = false;
  const ClusterMap without = ClusterMap::from(state).value();
  CHECK(without.owner(8000).status().code() == StatusCode::kUnavailable);
  CHECK(without.addresses() == std::vector<std::string>{"10.0.0.1:7470"});
}

TEST_CASE("a path's shard follows the forks that the node told", "[client]") {
  const std::array<TokenId, 4> tokens = {1, 2, 3, 4};
  const OwnerOfPath path{kModel, "", tokens, 2};
  const auto digests = block_digests(shard_root(kSpace, kModel, ""), tokens, 2);
  msg::ClusterState state = told();
  CHECK(ClusterMap::from(state).value().shard_of(path) == shard_of(digests[0]));
  state.forks = {{digests[0], 2}};
  CHECK(ClusterMap::from(state).value().shard_of(path) == shard_of(digests[1]));
  CHECK(ClusterMap::from(state).value().shard_of(OwnerOfShard{77}) == 77);
  CHECK(ClusterMap::from(state).value().shard_of(OwnerOfSession{"chat"}) ==
        shard_of_session(kSpace, "chat"));
}

TEST_CASE("a put or lookup that names a session goes to the session's owner", "[client]") {
  msg::BeginPut put;
  CHECK(std::holds_alternative<OwnerOfPath>(owner_of(put, 64)));
  put.session = "chat";
  CHECK(std::get<OwnerOfSession>(owner_of(put, 64)).name == "chat");
}

TEST_CASE("a node that is no member tells nothing about the owners", "[client]") {
  msg::ClusterState state = told();
  state.state = "cut_off";
  CHECK(ClusterMap::from(state).status().code() == StatusCode::kUnavailable);
  state = told();
  state.nodes[0].address = "unix:/run/other.sock";
  CHECK(ClusterMap::from(state).status().code() == StatusCode::kCorruption);
  state = told();
  state.owners.clear();
  CHECK(ClusterMap::from(state).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("a service that is in no cluster is not asked about one", "[client]") {
  FakeServer server([](FakeServer& self, const msg::Request& request) {
    if (const auto* model = std::get_if<msg::RegisterModel>(&request.body)) {
      msg::ModelRow row;
      row.model = model->model;
      self.reply(request.id, row);
    } else if (std::holds_alternative<msg::ListPrefixes>(request.body)) {
      self.reply(request.id, msg::Segments{});
    } else {
      self.refuse(request.id, Status::not_found("nothing"));
    }
  });
  const auto client = server.connect().value();
  ModelSpec spec;
  spec.name = "m";
  spec.num_layers = spec.num_q_heads = spec.num_kv_heads = 1;
  spec.head_dim = 8;
  REQUIRE(client->register_model(spec).ok());
  CHECK(client->segments().ok());
  const std::array<TokenId, 2> tokens = {1, 2};
  CHECK(client->lookup({spec, {}, ""}, tokens).status().code() == StatusCode::kNotFound);
  CHECK(client->session("chat").status().code() == StatusCode::kNotFound);
  server.on_loop([&] { CHECK(server.seen().size() == 4); });
}

TEST_CASE("the list of all nodes is retried when the connection is lost", "[client]") {
  MachineRuntime machine;
  FakeServer server([](FakeServer&, const msg::Request&) {});
  std::atomic<int> failures{0};
  const Nodes::Dial dial = [&, real = server.dial()](
                               const std::string&,
                               std::uint32_t timeout_ms) -> Result<std::shared_ptr<Channel>> {
    if (failures > 0 && failures-- > 0) return Status::unavailable("it restarts");
    return real(timeout_ms);
  };
  const CallOptions options{
      .timeout_ms = 5000, .deadline_ms = 0, .retry = true, .runtime = &machine};
  const auto nodes = Nodes::open(dial, {"here"}, options).value();
  failures = 2;
  const auto channel = nodes->find(Retry(options, "segments"), AnyNode{}).value().channel;
  server.on_loop([&] { server.drop(); });
  while (!channel->lost()) std::this_thread::yield();
  Retry retry(options, "segments");
  const auto all = nodes->all(retry);
  REQUIRE(all.ok());
  CHECK(all->size() == 1);
  CHECK(failures <= 0);
}

}  // namespace
