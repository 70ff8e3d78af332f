#include "client/cli/rebalance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "client/cli/cluster_commands.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "precis/placement.h"
#include "precis/printable.h"
#include "precis/shards.h"

namespace precis::cli {
namespace {

using cluster::kNobody;

constexpr std::uint32_t kWeightMax = 1'000'000;

Result<std::pair<std::string, std::uint32_t>> parse_weighted(const std::string& text) {
  const auto equals = text.rfind('=');
  std::uint32_t weight = 0;
  if (equals != std::string::npos && equals > 0) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + equals + 1, end, weight);
    if (read.ec == std::errc() && read.ptr == end && weight >= 1 && weight <= kWeightMax) {
      return std::pair{text.substr(0, equals), weight};
    }
  }
  return Status::invalid("--with '" + text + "': give a node's name and its weight, from 1 to " +
                         std::to_string(kWeightMax) + ", such as node-4=100");
}

// The nodes by name, with the weights that they would have.
Result<std::map<std::string, ShardMoves::Node>> changed_nodes(const msg::ClusterState& state,
                                                              const Rebalancing& change) {
  std::map<std::string, ShardMoves::Node> nodes;
  for (const msg::ClusterNode& node : state.nodes) {
    const bool may_own = node.live && !node.draining;
    nodes[node.name] = {node.name, node.live ? node.address : "", may_own ? node.weight : 0};
  }
  for (const std::string& text : change.with) {
    PRECIS_ASSIGN(auto weighted, parse_weighted(text));
    ShardMoves::Node& node = nodes[weighted.first];
    node.name = weighted.first;
    node.weight = weighted.second;
  }
  for (const std::string& name : change.without) {
    const auto node = nodes.find(name);
    if (node == nodes.end()) {
      return Status::not_found("the cluster has no node '" + printable(name) + "'");
    }
    node->second.weight = 0;
  }
  if (std::ranges::none_of(nodes, [](const auto& node) { return node.second.weight > 0; })) {
    return Status::conflict("no node could own the shards");
  }
  return nodes;
}

std::string stored_text(std::optional<std::uint64_t> bytes) {
  return bytes ? "about " + bytes_text(*bytes) : "-";
}

// The bytes that a node stores of all tenants; unknown if it does not answer.
std::optional<std::uint64_t> stored_at(const std::string& address, const Connect& connect) {
  if (address.empty()) return {};
  const auto client = connect(address);
  if (!client.ok()) return {};
  const auto stats = (*client)->stats();
  if (!stats.ok()) return {};
  const auto row = std::ranges::find(stats->rows, "precis_all_stored_bytes", &msg::Stat::name);
  if (row == stats->rows.end()) return {};
  return static_cast<std::uint64_t>(row->value);
}

void count_bytes(ShardMoves& moves, const Connect& connect) {
  std::map<std::size_t, std::optional<std::uint64_t>> stored;  // by node
  for (ShardMoves::Move& move : moves.moves) {
    if (!move.from) continue;
    const ShardMoves::Node& node = moves.nodes[*move.from];
    const auto [known, is_new] = stored.try_emplace(*move.from);
    if (is_new) known->second = stored_at(node.address, connect);
    if (known->second) move.bytes = *known->second * move.shards / node.shards;
  }
}

Json to_json(const ShardMoves& moves) {
  const auto or_null = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? Json(*bytes) : Json();
  };
  Json json{{"dry_run", true},
            {"moved_shards", moves.shards()},
            {"moved_bytes", or_null(moves.bytes())},
            {"nodes", Json::array()},
            {"moves", Json::array()}};
  for (const ShardMoves::Node& node : moves.nodes) {
    json["nodes"].push_back({{"name", node.name},
                             {"weight", node.weight},
                             {"shards", node.shards},
                             {"shards_after", node.shards_after}});
  }
  for (const ShardMoves::Move& move : moves.moves) {
    json["moves"].push_back({{"from", move.from ? Json(moves.nodes[*move.from].name) : Json()},
                             {"to", moves.nodes[move.to].name},
                             {"shards", move.shards},
                             {"bytes", or_null(move.bytes)}});
  }
  return json;
}

}  // namespace

std::uint32_t ShardMoves::shards() const {
  std::uint32_t sum = 0;
  for (const Move& move : moves) sum += move.shards;
  return sum;
}

std::optional<std::uint64_t> ShardMoves::bytes() const {
  std::uint64_t sum = 0;
  for (const Move& move : moves) {
    if (!move.bytes) return {};
    sum += *move.bytes;
  }
  return sum;
}

Result<ShardMoves> planned_moves(const msg::ClusterState& state, const Rebalancing& change) {
  PRECIS_ASSIGN(auto nodes, changed_nodes(state, change));
  ShardMoves planned;
  planned.shared = state.shared;
  std::map<std::string, std::uint32_t> places;
  std::vector<cluster::Member> members;
  for (auto& [name, node] : nodes) {
    places[name] = static_cast<std::uint32_t>(planned.nodes.size());
    members.push_back({cluster::member_key(name), node.weight});
    planned.nodes.push_back(std::move(node));
  }
  std::vector<std::uint32_t> before = state.owners;
  before.resize(kShards, kNobody);
  for (std::uint32_t& owner : before) {
    if (owner != kNobody) owner = places.at(state.nodes[owner].name);
  }
  const std::vector<std::uint32_t> after = cluster::place_shards(members, before);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;
  for (std::size_t shard = 0; shard < after.size(); ++shard) {
    if (before[shard] != kNobody) ++planned.nodes[before[shard]].shards;
    ++planned.nodes[after[shard]].shards_after;
    if (before[shard] != after[shard]) ++counts[{before[shard], after[shard]}];
  }
  for (const auto& [nodes_of, shards] : counts) {
    ShardMoves::Move move{{}, nodes_of.second, shards};
    if (nodes_of.first != kNobody) move.from = nodes_of.first;
    planned.moves.push_back(move);
  }
  return planned;
}

std::string moves_text(const ShardMoves& moves, std::size_t columns) {
  if (moves.moves.empty()) return "no shard would move: each node owns its share\n";
  Table table({{"FROM", false, 0, 12}, {"TO", false, 0, 12}, {"SHARDS", true}, {"STORED", true}});
  for (const ShardMoves::Move& move : moves.moves) {
    table.add({move.from ? printable(moves.nodes[*move.from].name) : "nobody",
               printable(moves.nodes[move.to].name), count_text(move.shards),
               stored_text(move.bytes)});
  }
  Table after({{"NODE", false, 0, 12}, {"WEIGHT", true}, {"SHARDS", true}, {"THEN", true}});
  for (const ShardMoves::Node& node : moves.nodes) {
    after.add({printable(node.name), count_text(node.weight), count_text(node.shards),
               count_text(node.shards_after)});
  }
  const std::string stored =
      moves.bytes() ? ", which store about " + bytes_text(*moves.bytes()) : "";
  return fmt::format("{} of {} shards would move ({}){}\n", count_text(moves.shards()),
                     count_text(kShards), percent_text(moves.shards(), kShards), stored) +
         (moves.shared
              ? ""
              : "the nodes share no storage: what these shards store is missed until it is "
                "put again\n") +
         "\n" + table.text(columns) + "\n" + after.text(columns);
}

Status show_moves(Context context, const Rebalancing& change, const Connect& connect) {
  PRECIS_ASSIGN(const msg::ClusterState state, context.client.cluster());
  if (state.name.empty()) {
    return Status::unsupported("this service is in no cluster: cluster_etcd is not set");
  }
  PRECIS_TRY(check_member(state));  // else what it knows may be old
  PRECIS_ASSIGN(ShardMoves moves, planned_moves(state, change));
  count_bytes(moves, connect);
  context.out += context.json ? json_text(to_json(moves)) : moves_text(moves, context.columns());
  return {};
}

}  // namespace precis::cli
