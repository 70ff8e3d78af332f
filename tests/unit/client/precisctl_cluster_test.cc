// The texts that precisctl prints about clusters.
#include <catch2/catch.hpp>

#include "client/cli/cluster_commands.h"
#include "client/cli/rebalance.h"
#include "precis/shards.h"

namespace {

using namespace precis;
using namespace precis::cli;
using Catch::Matchers::Contains;

msg::ClusterNode node_of(const std::string& name, bool live = true) {
  return {name, "10.0.0.1:7470", "1.2.0", 100, false, live, 0};
}

// Two live nodes own half of the shards each, and one is gone.
msg::ClusterState two_of_three() {
  msg::ClusterState state;
  state.name = "prod";
  state.node = "a";
  state.state = "member";
  state.revision = 1;
  state.nodes = {node_of("a"), node_of("b"), node_of("gone", false)};
  for (std::uint32_t shard = 0; shard < kShards; ++shard) state.owners.push_back(shard % 2);
  return state;
}

TEST_CASE("cluster status warns if live nodes have different versions", "[client]") {
  msg::ClusterState state = two_of_three();
  state.nodes[2].version = "0.9";
  CHECK_THAT(cluster_text(state, 0), !Contains("WARNING"));
  state.nodes[1].version = "1.3.0";
  CHECK_THAT(cluster_text(state, 0), Contains("WARNING: the nodes have different versions: "
                                              "1.2.0 (a), 1.3.0 (b)"));
}

TEST_CASE("a planned move counts the shards of nodes that are gone, and those of nobody",
          "[client]") {
  msg::ClusterState state = two_of_three();
  const auto nothing = planned_moves(state, {}).value();
  CHECK(nothing.moves.empty());
  CHECK(nothing.bytes() == 0);
  for (std::uint32_t shard = 0; shard < 10; ++shard) state.owners[shard] = 2;
  for (std::uint32_t shard = 10; shard < 16; ++shard) state.owners[shard] = ~0u;
  const auto moves = planned_moves(state, {}).value();
  CHECK(moves.shards() == 16);
  CHECK_FALSE(moves.bytes());  // what nobody owns has no size
  CHECK(moves.nodes[0].shards_after == kShards / 2);
  CHECK(moves.nodes[2].shards == 10);
  CHECK(moves.nodes[2].shards_after == 0);
  CHECK_THAT(moves_text(moves, 0), Contains("16 of 16 384 shards would move (0.1%)\n") &&
                                       Contains("gone") && Contains("nobody"));
}

TEST_CASE("a node whose weight changes gets its new share", "[client]") {
  const auto moves = planned_moves(two_of_three(), {true, {}, {"a=300"}}).value();
  CHECK(moves.nodes[0].shards_after == kShards / 4 * 3);
  CHECK(moves.moves.size() == 1);
  CHECK(moves.shards() == kShards / 4);
}

}  // namespace
