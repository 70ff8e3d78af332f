// ./dev simulate cluster: how evenly a cluster's nodes share a large service's load, and how much
// moves when a node comes or goes.
//
// It compares what Precis does (a table of owners, and forks) with hashing shards to nodes and with
// dividing paths by their first block alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "client/cli/progress.h"
#include "precis/mixed.h"
#include "precis/placement.h"
#include "tests/simulate/cluster/workload.h"

namespace precis::simulate {
namespace {

using cluster::kNobody;
using cluster::Member;
using Owners = std::vector<std::uint32_t>;

// A key that holds more than this share of an average node's load becomes a fork.
constexpr double kForkShare = 1.0 / 32;
// The mark for the most loaded node (docs/design/cluster.md).
constexpr double kMostOverMean = 1.25;

struct Options {
  std::vector<std::uint32_t> nodes = {10, 30, 100, 300, 1000};
  std::uint64_t prefixes = 10'000'000;
  std::uint32_t tenants = 20;
  std::uint64_t seed = 1;
  std::string conversations, json;
};

struct Row {
  std::uint32_t nodes = 0;
  bool weighted = false, table = false, forked = false;
  std::uint32_t shards = 0;
  double stored = 0, read = 0;  // of the most loaded node, over what its weight gives it
  double joined = 0, left = 0;  // shards that move when a node comes or goes, in 1/nodes of all
  std::size_t forks = 0;
  double copied = 0;  // stored blocks above those that differ, as a share
};

// Weighted rendezvous hashing: each shard's owner is the member with the highest value for it,
// whatever other shards the member owns (Schindelhauer and Schomaker, "Weighted distributed hash
// tables", 2005).
Owners hashed(std::span<const Member> members, std::uint32_t shards) {
  Owners owners(shards);
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    double best = -1;
    for (std::uint32_t m = 0; m < members.size(); ++m) {
      const std::uint64_t x = cluster::mixed(members[m].key ^ cluster::mixed(shard));
      const double uniform = (static_cast<double>(x >> 11) + 0.5) * 0x1p-53;
      const double value = members[m].weight / -std::log(uniform);
      if (value <= best) continue;
      best = value;
      owners[shard] = m;
    }
  }
  return owners;
}

// The members come one by one, as the nodes of a cluster do.
Owners grown(std::span<const Member> members, std::uint32_t shards) {
  Owners owners(shards, kNobody);
  for (std::size_t count = 1; count <= members.size(); ++count) {
    owners = place_shards(members.first(count), std::move(owners));
  }
  return owners;
}

double differing(const Owners& a, const Owners& b) {
  std::size_t count = 0;
  for (std::size_t s = 0; s < a.size(); ++s) count += a[s] != b[s];
  return static_cast<double>(count) / static_cast<double>(a.size());
}

std::vector<Member> make_members(std::uint32_t count, bool weighted, std::uint64_t seed) {
  std::mt19937_64 random(seed * 2 + weighted);
  std::vector<Member> members;
  for (std::uint32_t m = 0; m < count; ++m) {
    members.push_back({random(), weighted ? 1U << (m % 3) : 1U});
  }
  return members;
}

// Fills in the fields that depend on the owners of the shards. `members` has one member more than
// the row has nodes: the node that comes.
void measure(Row& row, std::span<const Member> members, const std::vector<Load>& loads) {
  const auto old = members.first(row.nodes);
  const auto remaining = old.first(row.nodes - 1);  // the last of them goes
  const Owners owners = row.table ? grown(old, row.shards) : hashed(old, row.shards);
  Owners without = owners;
  std::ranges::replace(without, row.nodes - 1, kNobody);
  const Owners more = row.table ? place_shards(members, owners) : hashed(members, row.shards);
  const Owners fewer = row.table ? place_shards(remaining, without) : hashed(remaining, row.shards);
  row.joined = differing(owners, more) * row.nodes;
  row.left = differing(owners, fewer) * row.nodes;

  std::vector<Load> of_node(row.nodes);
  Load all;
  for (std::uint32_t shard = 0; shard < row.shards; ++shard) {
    of_node[owners[shard]].stored += loads[shard].stored;
    of_node[owners[shard]].read += loads[shard].read;
    all.stored += loads[shard].stored;
    all.read += loads[shard].read;
  }
  double weights = 0;
  for (const Member& member : old) weights += member.weight;
  for (std::uint32_t m = 0; m < row.nodes; ++m) {
    const double share = old[m].weight / weights;
    row.stored = std::max(row.stored, of_node[m].stored / (all.stored * share));
    row.read = std::max(row.read, of_node[m].read / (all.read * share));
  }
}

std::vector<Row> simulate(const Workload& workload, const Options& options) {
  std::vector<Row> rows;
  const Load total = workload.total();
  const auto plan = workload.shard_loads({}, kShards / 4);
  const auto undivided = workload.shard_loads({}, kShards);
  cli::Progress bar("simulate cluster", options.nodes.size());
  for (std::size_t step = 0; step < options.nodes.size(); ++step) {
    const std::uint32_t nodes = options.nodes[step];
    bar.show(step, fmt::format("{} nodes", nodes));
    const Forks forks = workload.forks(kForkShare * total.stored / nodes);
    const auto divided = workload.shard_loads(forks, kShards);
    double stored = 0;
    for (const Load& load : divided) stored += load.stored;
    for (const bool weighted : {false, true}) {
      const auto members = make_members(nodes + 1, weighted, options.seed);
      for (const bool table : {false, true}) {
        for (const bool forked : {false, true}) {
          Row row{nodes, weighted, table, forked, kShards};
          if (forked) row.forks = forks.size();
          if (forked) row.copied = stored / total.stored - 1;
          const bool planned = !table && !forked;
          if (planned) row.shards = kShards / 4;
          measure(row, members, forked ? divided : planned ? plan : undivided);
          rows.push_back(row);
        }
      }
    }
  }
  return rows;
}

std::string named(const Row& row) {
  return fmt::format("{} of {}, {}", row.table ? "table" : "hashing", row.shards,
                     row.forked ? "forks" : "first block");
}

void print(const std::vector<Row>& rows) {
  fmt::print("{:>6} {:>8}  {:<30} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}\n", "nodes", "weights",
             "shards", "stored", "read", "joined", "left", "forks", "copied");
  for (const Row& row : rows) {
    fmt::print("{:>6} {:>8}  {:<30} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>6} {:>7.1f}%\n",
               row.nodes, row.weighted ? "1, 2, 4" : "equal", named(row), row.stored, row.read,
               row.joined, row.left, row.forks, 100 * row.copied);
  }
  fmt::print(
      "\nstored, read: the most loaded node's blocks over its fair share. joined, left: shards "
      "that "
      "move when\na node comes or goes, in 1/nodes of all. copied: blocks that several shards "
      "store, "
      "for each block.\n");
}

nlohmann::ordered_json json_of(const Options& options, const Workload& workload,
                               const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    list.push_back({{"nodes", row.nodes},
                    {"weights", row.weighted ? "1, 2, 4" : "equal"},
                    {"placement", row.table ? "table" : "hashing"},
                    {"division", row.forked ? "forks" : "first block"},
                    {"shards", row.shards},
                    {"stored_over_share", row.stored},
                    {"read_over_share", row.read},
                    {"moved_by_join", row.joined},
                    {"moved_by_leave", row.left},
                    {"forks", row.forks},
                    {"copied", row.copied}});
  }
  return {{"prefixes", workload.prefixes()},
          {"tenants", options.tenants},
          {"seed", options.seed},
          {"rows", list}};
}

// Checks what Precis does against the marks: load by weight, and no more moves than a joining
// node's share. Returns the exit status.
int verdict(const std::vector<Row>& rows) {
  int failed = 0;
  for (const Row& row : rows) {
    if (!row.table || !row.forked) continue;
    if (row.stored <= kMostOverMean && (row.weighted || row.joined <= 1)) continue;
    ++failed;
    fmt::print(stderr,
               "{} nodes, {}: the most loaded node stores {:.2f} of its share, {:.2f}/{} of "
               "the shards moved\n",
               row.nodes, row.weighted ? "weights 1, 2, 4" : "equal weights", row.stored,
               row.joined, row.nodes);
  }
  return failed == 0 ? 0 : 1;
}

int run(const Options& options) {
  const auto conversations = read_conversations(options.conversations);
  if (!conversations.ok()) {
    fmt::print(stderr, "simulate cluster: {}\n", conversations.status().message());
    return 2;
  }
  const Workload workload(*conversations, options.prefixes, options.tenants);
  const auto rows = simulate(workload, options);
  print(rows);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << json_of(options, workload, rows).dump(1) << "\n";
    if (!file.good()) {
      fmt::print(stderr, "simulate cluster: {} cannot be written\n", options.json);
      return 1;
    }
  }
  return verdict(rows);
}

}  // namespace
}  // namespace precis::simulate

int main(int argc, char** argv) {
  precis::simulate::Options options;
  CLI::App app("Simulates how a cluster's nodes share a service's load.", "simulate cluster");
  app.add_option("--conversations", options.conversations, "Prompts of a real service")->required();
  app.add_option("--nodes", options.nodes, "Numbers of nodes")
      ->delimiter(',')
      ->check(CLI::Range(2, 5000))
      ->capture_default_str();
  app.add_option("--prefixes", options.prefixes, "How many prompts differ")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--tenants", options.tenants, "Tenants, each with a system prompt")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Decides the nodes' names")->capture_default_str();
  app.add_option("--json", options.json, "Also write the numbers to this file");
  CLI11_PARSE(app, argc, argv);
  return precis::simulate::run(options);
}
