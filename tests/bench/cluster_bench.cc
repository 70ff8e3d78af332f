// ./dev bench cluster: how much more three nodes of a cluster serve than one. This machine has too
// few cores for three nodes at full speed. So the clients get the prompts of one node at a time,
// and the program measures the CPU time of that node's process per byte. If each node had one core
// to itself, the one that first has no CPU time left would limit what all serve.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "client/cli/table.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/random_kv.h"

namespace precis::bench {
namespace {

using testing::Node;

constexpr std::size_t kClients = 2;
constexpr std::uint32_t kTokens = 64;
constexpr double kMark = 2.6;

ModelSpec model_of_8b() {
  ModelSpec model;
  model.name = "bench/8b";
  model.num_layers = 8;
  model.num_q_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.dtype = Dtype::kBf16;
  return model;
}

struct Options {
  std::uint32_t prompts = 384, runs = 5;
  double seconds = 3;
  std::string json;
};

// The CPU time that a process has used.
double cpu_seconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state to cmajflt
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

class Cluster {
 public:
  Cluster(std::size_t nodes, const Options& options) : options_(options) {
    for (std::size_t n = 0; n < nodes; ++n) {
      nodes_.emplace_back(etcd_, "node-" + std::to_string(n), "", 10, "2GiB");
    }
  }

  // Puts all prompts, whose rows stay in the RAM of their owners.
  Status fill() {
    for (Node& node : nodes_) PRECIS_TRY(settle(node));
    std::string addresses;
    for (const Node& node : nodes_) addresses += (addresses.empty() ? "" : ",") + node.address();
    ConnectOptions options;
    options.tenant = "red";
    options.share_memory = false;  // as between hosts
    while (clients_.size() < kClients) {
      PRECIS_ASSIGN(auto client, Client::connect("precis://" + addresses, options));
      clients_.push_back(std::move(client));
    }
    PRECIS_ASSIGN(model_, clients_[0]->register_model(model_of_8b()));
    std::mt19937 random(1);
    const testing::Kv kv = testing::random_kv(random, model_.spec, 0, kTokens);
    for (std::uint32_t p = 0; p < options_.prompts; ++p) {
      PutOptions how;
      how.recipe = "keydiff";
      how.keep = Budget::ratio_ppm(900'000);
      auto tokens = testing::random_tokens(random, kTokens);
      PRECIS_TRY(testing::put_all(*clients_[0], model_, tokens, kv, how).status());
      PRECIS_ASSIGN(const LookupMatch match, clients_[0]->lookup(model_, tokens));
      prompts_[owner_of(*match.shard)].push_back(std::move(tokens));
    }
    return {};
  }

  // The GB/s that all nodes would serve if each had one core to itself. The nodes are alike, so the
  // mean of their rates is taken, and the one with the most prompts limits the others.
  Result<double> capacity() {
    double sum = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      PRECIS_ASSIGN(const double rate, rate_of(n));
      sum += rate;
    }
    return sum / static_cast<double>(nodes_.size()) / largest_share();
  }
  // The share of all prompts that the node with the most of them has.
  double largest_share() const {
    std::size_t most = 0;
    for (const auto& [node, of_node] : prompts_) most = std::max(most, of_node.size());
    return static_cast<double>(most) / options_.prompts;
  }

 private:
  static Status settle(Node& node) {
    for (int tries = 0; tries < 600; ++tries) {
      const msg::ClusterState state = node.state();
      const auto owns = [](const msg::ClusterNode& other) { return other.shards > 0; };
      if (state.state == "member" && std::ranges::all_of(state.nodes, owns)) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return Status::timed_out("the nodes own no shards after a minute");
  }

  std::size_t owner_of(std::uint32_t shard) {
    const msg::ClusterState state = nodes_[0].state();
    const std::string& address = state.nodes[state.owners[shard]].address;
    return static_cast<std::size_t>(std::ranges::find(nodes_, address, &Node::address) -
                                    nodes_.begin());
  }

  // GB that the node serves in a second of its CPU time, when all clients get its prompts.
  Result<double> rate_of(std::size_t n) {
    std::atomic<std::uint64_t> bytes{0};
    std::vector<Status> failed(kClients);
    const double cpu_before = cpu_seconds(nodes_[n].pid());
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(options_.seconds));
    std::vector<std::thread> threads;
    for (std::size_t c = 0; c < kClients; ++c) {
      threads.emplace_back([&, c] {
        for (std::size_t p = c; failed[c].ok() && std::chrono::steady_clock::now() < until;
             p += kClients) {
          const auto got = get(*clients_[c], prompts_[n][p % prompts_[n].size()]);
          failed[c] = got.status();
          if (got.ok()) bytes += *got;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : failed) PRECIS_TRY(status);
    return static_cast<double>(bytes.load()) / 1e9 / (cpu_seconds(nodes_[n].pid()) - cpu_before);
  }

  Result<std::uint64_t> get(Client& client, const std::vector<TokenId>& tokens) const {
    PRECIS_ASSIGN(const LookupMatch match, client.lookup(model_, tokens));
    if (!match) return Status::not_found("a prompt that was put is not stored");
    PRECIS_ASSIGN(const Prefix prefix, client.get(match));
    PRECIS_TRY(prefix.wait());
    return prefix.bytes();
  }

  const Options options_;
  const testing::EtcdMembers etcd_;
  std::deque<Node> nodes_;
  std::vector<std::shared_ptr<Client>> clients_;
  Model model_;
  std::map<std::size_t, std::vector<std::vector<TokenId>>> prompts_;  // by their owner
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Both clusters run in turns, because the speed of a shared host changes by the minute.
Status measure(const Options& options) {
  Cluster one(1, options), three(3, options);
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
  cli::Table table({{"FIGURE"}, {"VALUE", true}});
  table.add({"one node would serve on one core, GB/s", fmt::format("{:.2f}", median(of_one))});
  table.add({"three nodes on three cores, GB/s", fmt::format("{:.2f}", median(of_three))});
  table.add({"the largest share of a node", fmt::format("{:.3f}", three.largest_share())});
  table.add({fmt::format("three nodes / one (mark: {})", kMark), fmt::format("{:.2f}", ratio)});
  fmt::print("{}", table.text());
  if (options.json.empty()) return {};
  const nlohmann::ordered_json json = {{"one_gb_per_second", median(of_one)},
                                       {"three_gb_per_second", median(of_three)},
                                       {"largest_share", three.largest_share()},
                                       {"three_by_one", ratio},
                                       {"three_by_one_of_each_run", ratios},
                                       {"mark", kMark},
                                       {"met", ratio >= kMark}};
  std::ofstream file(options.json);
  file << json.dump(2) << "\n";
  if (!file.flush()) return Status::invalid(options.json + " cannot be written");
  return {};
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  CLI::App app("Compares what three nodes of a cluster serve with what one does, per CPU time.");
  precis::bench::Options options;
  app.add_option("--prompts", options.prompts, "Prompts of 2 MiB of KV")->capture_default_str();
  app.add_option("--runs", options.runs, "Runs of each; their median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "The time of a run")->capture_default_str();
  app.add_option("--json", options.json, "Also writes the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (!precis::testing::EtcdMembers::installed()) {
    fmt::print(stderr, "bench cluster: the Debian package etcd-server is missing\n");
    return 2;
  }
  const precis::Status status = precis::bench::measure(options);
  if (!status.ok()) fmt::print(stderr, "bench cluster: {}\n", status.to_string());
  return status.ok() ? 0 : 1;
}
