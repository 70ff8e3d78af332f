// One prefix that many clients get, from a node alone and from a node with three further ones that
// it names because the prefix is hot. All lookups go to the owner in both cases.
#include <fmt/format.h>

#include <algorithm>

#include "tests/bench/cluster/bench_nodes.h"
#include "tests/bench/cluster/parts.h"
#include "tests/bench/row.h"

namespace precis::bench {
namespace {

constexpr std::size_t kClients = 4, kNodes = 4;
// Below this gain, the mechanism is not worth its code.
constexpr double kMark = 2.6, kWorthIt = 1.1;
constexpr double kMib = 1024.0 * 1024.0;

// A low limit makes the prefix hot on a slow machine, too.
constexpr char kHot[] = "cluster_hot_bytes_per_s = '1MiB'\n",
               kOff[] = "cluster_hot_bytes_per_s = 0\n";

std::string settings(const std::string& ceph, const std::string& name, const char* hot) {
  return ceph + "cluster_name = '" + name + "'\n" + hot;
}

// The work of nodes while clients read one prefix.
struct Serving {
  double gb = 0;
  std::vector<NodeUse> uses;

  double busiest() const {
    double most = 0;
    for (const NodeUse& used : uses) most = std::max(most, used.cpu_seconds);
    return most;
  }
  // The GB/s that they would serve if each had one core to itself.
  double capacity() const { return gb / busiest(); }
  double share(std::size_t node) const {
    return static_cast<double>(uses[node].pushed_bytes) / 1e9 / gb;
  }
  double cpu_per_gb(std::size_t node) const {
    return uses[node].cpu_seconds * 1e9 / static_cast<double>(uses[node].pushed_bytes);
  }
};

Result<Serving> serve(BenchNodes& nodes, const Prompt& prompt, double seconds) {
  PRECIS_ASSIGN(const auto before, nodes.use());
  PRECIS_ASSIGN(const std::uint64_t bytes, nodes.read({prompt}, seconds));
  PRECIS_ASSIGN(auto uses, nodes.use_since(before));
  return Serving{static_cast<double>(bytes) / 1e9, std::move(uses)};
}

// Reads the prompt until a lookup names the other nodes, and once more, so that they have it.
Status heat(BenchNodes& nodes, const Prompt& prompt) {
  for (int tries = 0; tries < 30; ++tries) {
    PRECIS_TRY(nodes.read({prompt}, 1).status());
    PRECIS_ASSIGN(const LookupMatch match, nodes.lookup(prompt));
    if (match.also_at.size() + 1 < kNodes) continue;
    return nodes.read({prompt}, 1).status();
  }
  return Status::timed_out("no further nodes serve a hot prefix after 30 s");
}

struct Size {
  std::vector<double> one, many, gains;
  std::vector<Serving> servings;  // of the many
  std::vector<double> cpu_per_gb_of_one;
  std::size_t owner = 0;
};

Result<Size> measure_size(BenchNodes& one, BenchNodes& many, std::uint32_t tokens,
                          const ClusterOptions& options) {
  PRECIS_ASSIGN(const Prompt of_one, one.put(tokens, Durability::kShared));
  PRECIS_ASSIGN(const Prompt of_many, many.put(tokens, Durability::kShared));
  Size size;
  PRECIS_ASSIGN(const LookupMatch match, many.lookup(of_many));
  size.owner = many.owner_of(match);
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    PRECIS_TRY(one.read({of_one}, 1).status());
    PRECIS_ASSIGN(const Serving alone, serve(one, of_one, options.seconds));
    PRECIS_TRY(heat(many, of_many));
    PRECIS_ASSIGN(Serving together, serve(many, of_many, options.seconds));
    size.one.push_back(alone.capacity());
    size.cpu_per_gb_of_one.push_back(alone.cpu_per_gb(0));
    size.many.push_back(together.capacity());
    size.gains.push_back(together.capacity() / alone.capacity());
    size.servings.push_back(std::move(together));
  }
  return size;
}

void report(const Size& size, double mib, Part& part) {
  std::vector<double> shares, cpu_of_owner, cpu_of_others;
  for (std::size_t n = 0; n < kNodes; ++n) {
    std::vector<double> of_node;
    for (const Serving& serving : size.servings) {
      of_node.push_back(serving.share(n));
      (n == size.owner ? cpu_of_owner : cpu_of_others).push_back(serving.cpu_per_gb(n));
    }
    shares.push_back(median(of_node));
  }
  std::swap(shares[0], shares[size.owner]);
  const double gain = median(size.gains);
  const std::string what = fmt::format("a prefix of {:.1f} MiB: ", mib);
  part.lines.push_back(
      {what + "one node would serve on one core, GB/s", fmt::format("{:.2f}", median(size.one))});
  part.lines.push_back(
      {what + "four nodes on four cores, GB/s", fmt::format("{:.2f}", median(size.many))});
  part.lines.push_back({what + "share of the bytes, the owner first",
                        fmt::format("{:.2f}", fmt::join(shares, " "))});
  part.lines.push_back({what + "CPU s/GB of one node; the owner; the others",
                        fmt::format("{:.3f} {:.3f} {:.3f}", median(size.cpu_per_gb_of_one),
                                    median(cpu_of_owner), median(cpu_of_others))});
  part.lines.push_back(
      {what + fmt::format("four nodes / one (mark: {})", kMark), fmt::format("{:.2f}", gain)});
  part.json.push_back({{"mib", mib},
                       {"nodes", kNodes},
                       {"one_gb_per_second", median(size.one)},
                       {"many_gb_per_second", median(size.many)},
                       {"shares_owner_first", shares},
                       {"cpu_seconds_per_gb_of_one", median(size.cpu_per_gb_of_one)},
                       {"cpu_seconds_per_gb_of_owner", median(cpu_of_owner)},
                       {"cpu_seconds_per_gb_of_others", median(cpu_of_others)},
                       {"many_by_one", gain},
                       {"many_by_one_of_each_run", size.gains},
                       {"mark", kMark},
                       {"met", gain >= kMark}});
  if (gain < kWorthIt) {
    part.warning += fmt::format(
        "FOUR NODES SERVE A HOT PREFIX OF {:.1f} MiB ONLY {:.2f} TIMES AS FAST AS ONE. Below {}, "
        "the mechanism (cluster_hot_bytes_per_s) is not worth its code: remove it.\n",
        mib, gain, kWorthIt);
  }
}

}  // namespace

Result<Part> measure_hot_prefix(const ClusterOptions& options, const std::string& ceph_settings) {
  BenchNodes one(1, settings(ceph_settings, "one", kOff));
  BenchNodes many(kNodes, settings(ceph_settings, "many", kHot));
  PRECIS_TRY(one.connect(kClients));
  PRECIS_TRY(many.connect(kClients));
  Part part;
  part.json = nlohmann::ordered_json::array();
  for (const std::uint32_t tokens : {64u, 512u}) {
    PRECIS_ASSIGN(const Size size, measure_size(one, many, tokens, options));
    report(size, tokens * 32.0 * 1024 * 0.9 / kMib, part);
  }
  return part;
}

}  // namespace precis::bench
