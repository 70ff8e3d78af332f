#include "client/cli/cluster_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "client/cli/json.h"
#include "client/cli/table.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

constexpr char kAlone[] = "this service is in no cluster: cluster_etcd is not set\n";
// The most ranges of shards that a row for people has.
constexpr std::size_t kRangesShown = 4;

std::string state_of(const msg::ClusterNode& node) {
  if (!node.live) return node.draining ? "gone, drained" : "gone";
  return node.draining ? "draining" : "live";
}

std::string own_state(const msg::ClusterState& state) {
  if (state.state == "cut_off") {
    return "cut off: its lease has ended, so others may own its shards; this is what it knew "
           "before";
  }
  if (state.state == "joining") return "joining";
  return fmt::format("member (its lease ends in {} unless etcd renews it)",
                     duration_text(static_cast<double>(state.lease_left_ms) / 1000));
}

// The weights of the nodes that may own shards.
std::uint64_t weights_of(const msg::ClusterState& state) {
  std::uint64_t sum = 0;
  for (const msg::ClusterNode& node : state.nodes) {
    if (node.live && !node.draining) sum += node.weight;
  }
  return sum;
}

// Says how much of this node is in the storage that the nodes share.
std::string shared_of(const msg::ClusterState& state) {
  if (!state.shared) return "nothing: a node that is lost takes with it what it stored";
  std::string text = state.unshared_bytes == 0
                         ? "all that this node stored"
                         : "all but " + bytes_text(state.unshared_bytes) + " of this node";
  if (state.loading > 0) text += fmt::format(", {} shards are being loaded", state.loading);
  if (!state.shared_error.empty()) text += "; problem: " + state.shared_error;
  return text;
}

// A warning if live nodes have different versions: "1.2.0 (a, b), 1.3.0 (c)".
std::string versions_of(const msg::ClusterState& state) {
  std::map<std::string, std::string> nodes;  // by version
  for (const msg::ClusterNode& node : state.nodes) {
    if (!node.live) continue;
    std::string& names = nodes[node.version];
    names += (names.empty() ? "" : ", ") + node.name;
  }
  if (nodes.size() < 2) return {};
  std::string text;
  for (const auto& [version, names] : nodes) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", version, names);
  }
  return "WARNING: the nodes have different versions: " + printable(text) +
         ": upgrade all to the same one\n";
}

// "0-4, 9", and how many more ranges there are.
std::string ranges_of(const msg::ClusterState& state, std::uint32_t node) {
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t begin = 0; begin < state.owners.size();) {
    std::size_t end = begin + 1;
    if (state.owners[begin] == node) {
      while (end < state.owners.size() && state.owners[end] == node) ++end;
      if (++ranges <= kRangesShown) {
        text += text.empty() ? "" : ", ";
        text += end == begin + 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, end - 1);
      }
    }
    begin = end;
  }
  if (ranges <= kRangesShown) return text;
  return text + fmt::format(", and {} more ranges", count_text(ranges - kRangesShown));
}

}  // namespace

Status check_member(const msg::ClusterState& state) {
  if (state.name.empty() || state.state == "member") return {};
  const std::string why = state.error.empty() ? state.state : state.error;
  return Status::moved(state.node + " is no member of the cluster " + state.name + ": " + why);
}

std::string cluster_text(const msg::ClusterState& state, std::size_t columns) {
  if (state.name.empty()) return kAlone;
  Facts facts;
  facts.add("cluster", state.name);
  facts.add("this node", state.node + ", " + own_state(state));
  if (!state.error.empty()) facts.add("problem", state.error);
  const auto unowned = std::ranges::count(state.owners, ~std::uint32_t{0});
  if (state.nodes.empty()) {
    facts.add("shards", "not known yet");
  } else if (state.revision == 0) {
    facts.add("shards", "no node owns any yet");
  } else if (unowned > 0) {
    facts.add(
        "shards",
        count_text(static_cast<std::uint64_t>(unowned)) +
            " have no owner: start a node, or end a drain (precisctl cluster drain NODE --off)");
  }
  facts.add("shared", shared_of(state));
  Table table({{"NODE", false, 0, 12},
               {"ADDRESS", false, 0, 12},
               {"STATE", false},
               {"WEIGHT", true, 2},
               {"SHARDS", true},
               {"SHARE", true, 1},
               {"VERSION", false, 3}});
  for (const msg::ClusterNode& node : state.nodes) {
    table.add({node.name, node.address, state_of(node), count_text(node.weight),
               count_text(node.shards), percent_text(node.shards, state.owners.size()),
               node.version});
  }
  return facts.text() + "\n" + table.text(columns) + versions_of(state);
}

std::string shards_text(const msg::ClusterState& state, std::size_t columns) {
  if (state.name.empty()) return kAlone;
  const std::uint64_t weights = weights_of(state);
  Table table({{"NODE", false, 0, 12}, {"SHARDS", true}, {"FAIR", true}, {"WHICH", false, 1, 20}});
  for (std::uint32_t n = 0; n < state.nodes.size(); ++n) {
    const msg::ClusterNode& node = state.nodes[n];
    const std::uint64_t weight = node.live && !node.draining ? node.weight : 0;
    const std::uint64_t fair = weights == 0 ? 0 : (state.owners.size() * weight) / weights;
    table.add({node.name, count_text(node.shards), count_text(fair), ranges_of(state, n)});
  }
  return (state.state == "member" ? "" : "this node is no member now, so this may be old\n") +
         table.text(columns) +
         fmt::format("revision {} of the owners; --json has the owner of each shard\n",
                     state.revision);
}

Status show_cluster(Context context) {
  PRECIS_ASSIGN(const msg::ClusterState state, context.client.cluster());
  if (context.json) {
    Json json = to_json(state);
    json.erase("owners");  // precisctl cluster map has them
    context.out += json_text(json);
  } else {
    context.out += cluster_text(state, context.columns());
  }
  return {};
}

Status show_shards(Context context) {
  PRECIS_ASSIGN(const msg::ClusterState state, context.client.cluster());
  context.out += context.json ? json_text(to_json(state)) : shards_text(state, context.columns());
  return {};
}

Status drain_node(Context context, const NodeDrain& drain) {
  PRECIS_ASSIGN(const msg::ClusterState before, context.client.cluster());
  PRECIS_ASSIGN(const msg::ClusterState state, context.client.drain_node(drain.node, !drain.off));
  const bool was_drained = std::ranges::any_of(before.nodes, [&](const msg::ClusterNode& node) {
    return node.name == drain.node && node.draining;
  });
  const std::string node = printable(drain.node);
  if (context.json) {
    context.out += json_text(to_json(state));
  } else if (was_drained != drain.off) {
    context.out += fmt::format("{} was {}\n", node, drain.off ? "not drained" : "drained already");
  } else if (drain.off) {
    context.out += fmt::format("{} may own shards again\n", node);
  } else {
    context.out += fmt::format(
        "{} gives away its shards; once precisctl cluster status shows 0, stop it\n", node);
  }
  return {};
}

}  // namespace precis::cli
