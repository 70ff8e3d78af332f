// Three nodes that share many prompts, and one that has them all. The clients get the prompts of
// one node at a time.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tests/bench/cluster/bench_nodes.h"
#include "tests/bench/cluster/parts.h"
#include "tests/bench/row.h"

namespace precis::bench {
namespace {

constexpr std::size_t kClients = 2;
constexpr std::uint32_t kTokens = 64;
constexpr double kMark = 2.6;

class Spread {
 public:
  Spread(std::size_t nodes, const ClusterOptions& options) : options_(options), nodes_(nodes) {}

  // Puts all prompts, whose rows stay in the RAM of their owners.
  Status fill() {
    PRECIS_TRY(nodes_.connect(kClients));
    for (std::uint32_t p = 0; p < options_.prompts; ++p) {
      PRECIS_ASSIGN(Prompt prompt, nodes_.put(kTokens));
      PRECIS_ASSIGN(const LookupMatch match, nodes_.lookup(prompt));
      prompts_[nodes_.owner_of(match)].push_back(std::move(prompt));
    }
    return {};
  }

  // The GB/s that all nodes would serve if each had one core to itself. The nodes are alike, so the
  // mean of their rates is taken, and the one with the most prompts limits the others.
  Result<double> capacity() {
    double sum = 0;
    for (const auto& [node, of_node] : prompts_) {
      PRECIS_ASSIGN(const auto before, nodes_.use());
      PRECIS_ASSIGN(const std::uint64_t bytes, nodes_.read(of_node, options_.seconds));
      PRECIS_ASSIGN(const auto used, nodes_.use_since(before));
      sum += static_cast<double>(bytes) / 1e9 / used[node].cpu_seconds;
    }
    return sum / static_cast<double>(prompts_.size()) / largest_share();
  }
  // The share of all prompts that the node with the most of them has.
  double largest_share() const {
    std::size_t most = 0;
    for (const auto& [node, of_node] : prompts_) most = std::max(most, of_node.size());
    return static_cast<double>(most) / options_.prompts;
  }

 private:
  const ClusterOptions options_;
  BenchNodes nodes_;
  std::map<std::size_t, std::vector<Prompt>> prompts_;  // by their owner
};

}  // namespace

// Both clusters run in turns, because the speed of a shared host changes by the minute.
Result<Part> measure_spread(const ClusterOptions& options) {
  Spread one(1, options), three(3, options);
  PRECIS_TRY(one.fill());
  PRECIS_TRY(three.fill());
  std::vector<double> ratios, of_one, of_three;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    PRECIS_ASSIGN(const double a, one.capacity());
    PRECIS_ASSIGN(const double b, three.capacity());
    of_one.push_back(a);
    of_three.push_back(b);
    ratios.push_back(b / a);
  }
  const double ratio = median(ratios);
  Part part;
  part.lines = {{"one node would serve on one core, GB/s", fmt::format("{:.2f}", median(of_one))},
                {"three nodes on three cores, GB/s", fmt::format("{:.2f}", median(of_three))},
                {"the largest share of a node", fmt::format("{:.3f}", three.largest_share())},
                {fmt::format("three nodes / one (mark: {})", kMark), fmt::format("{:.2f}", ratio)}};
  part.json = {{"one_gb_per_second", median(of_one)},
               {"three_gb_per_second", median(of_three)},
               {"largest_share", three.largest_share()},
               {"three_by_one", ratio},
               {"three_by_one_of_each_run", ratios},
               {"mark", kMark},
               {"met", ratio >= kMark}};
  return part;
}

}  // namespace precis::bench
