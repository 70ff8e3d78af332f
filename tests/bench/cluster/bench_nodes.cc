#include "tests/bench/cluster/bench_nodes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

namespace precis::bench {
namespace {

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

Result<double> cpu_seconds(pid_t pid) {
  clockid_t clock = 0;
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) {
    return Status::unavailable("the CPU time of a node cannot be read: it has ended");
  }
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Asks a few times a second, for at most a minute.
template <typename Done>
Status await(const Done& done, const char* what) {
  for (int tries = 0; tries < 600; ++tries) {
    if (done()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return Status::timed_out(std::string(what) + " after a minute");
}

}  // namespace

BenchNodes::BenchNodes(std::size_t nodes, const std::string& settings) {
  for (std::size_t n = 0; n < nodes; ++n) {
    nodes_.emplace_back(etcd_, "node-" + std::to_string(n), settings, 10, "2GiB");
  }
}

Status BenchNodes::settle(testing::Node& node) const {
  const auto serves = [&] {
    const msg::ClusterState state = node.state();
    const auto owns = [](const msg::ClusterNode& other) { return other.shards > 0; };
    return state.state == "member" && state.loading == 0 && state.nodes.size() == nodes_.size() &&
           std::ranges::all_of(state.nodes, owns);
  };
  return await(serves, "the nodes serve no shards");
}

Status BenchNodes::connect(std::size_t clients) {
  for (testing::Node& node : nodes_) PRECIS_TRY(settle(node));
  std::string addresses;
  for (const testing::Node& node : nodes_) {
    addresses += (addresses.empty() ? "" : ",") + node.address();
  }
  ConnectOptions options;
  options.tenant = "red";
  options.share_memory = false;  // as between hosts
  while (clients_.size() < clients) {
    PRECIS_ASSIGN(auto client, Client::connect("precis://" + addresses, options));
    clients_.push_back(std::move(client));
  }
  PRECIS_ASSIGN(model_, clients_[0]->register_model(model_of_8b()));
  return {};
}

Result<Prompt> BenchNodes::put(std::uint32_t tokens, Durability durability) {
  auto kv = kv_.find(tokens);
  if (kv == kv_.end()) {
    kv = kv_.emplace(tokens, testing::random_kv(random_, model_.spec, 0, tokens)).first;
  }
  PutOptions how;
  how.recipe = "keydiff";
  how.keep = Budget::ratio_ppm(900'000);
  Prompt prompt = testing::random_tokens(random_, tokens);
  PRECIS_TRY(testing::put_all(*clients_[0], model_, prompt, kv->second, how, durability).status());
  return prompt;
}

std::size_t BenchNodes::owner_of(const LookupMatch& match) {
  const msg::ClusterState state = nodes_[0].state();
  const std::string& address = state.nodes[state.owners[*match.shard]].address;
  return static_cast<std::size_t>(std::ranges::find(nodes_, address, &testing::Node::address) -
                                  nodes_.begin());
}

Result<std::uint64_t> BenchNodes::get(Client& client, const Prompt& prompt) const {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model_, prompt));
  if (!match) return Status::not_found("a prompt that was put is not stored");
  PRECIS_ASSIGN(const Prefix prefix, client.get(match));
  PRECIS_TRY(prefix.wait());
  return prefix.bytes();
}

Result<std::uint64_t> BenchNodes::read(const std::vector<Prompt>& prompts, double seconds) {
  std::atomic<std::uint64_t> bytes{0};
  std::vector<Status> failed(clients_.size());
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                         std::chrono::duration<double>(seconds));
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    threads.emplace_back([&, c] {
      for (std::size_t p = c; failed[c].ok() && std::chrono::steady_clock::now() < until;
           p += clients_.size()) {
        const auto got = get(*clients_[c], prompts[p % prompts.size()]);
        failed[c] = got.status();
        if (got.ok()) bytes += *got;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : failed) PRECIS_TRY(status);
  return bytes.load();
}

Result<std::vector<NodeUse>> BenchNodes::use() {
  std::vector<NodeUse> uses;
  for (const testing::Node& node : nodes_) {
    NodeUse used;
    used.pushed_bytes =
        static_cast<std::uint64_t>(testing::stat(node.client(), "precis_pushed_bytes_total"));
    PRECIS_ASSIGN(used.cpu_seconds, cpu_seconds(node.pid()));
    uses.push_back(used);
  }
  return uses;
}

Result<std::vector<NodeUse>> BenchNodes::use_since(const std::vector<NodeUse>& before) {
  PRECIS_ASSIGN(std::vector<NodeUse> uses, use());
  for (std::size_t n = 0; n < uses.size(); ++n) {
    uses[n].cpu_seconds -= before[n].cpu_seconds;
    uses[n].pushed_bytes -= before[n].pushed_bytes;
  }
  return uses;
}

Status BenchNodes::restart(bool keeps_disk) {
  testing::Node& node = nodes_.front();
  node.stop();
  if (!keeps_disk) node.lose_disk();
  node.start();
  return settle(node);
}

Status BenchNodes::settle_uploads() {
  for (testing::Node& node : nodes_) {
    PRECIS_TRY(await([&] { return node.state().unshared_bytes == 0; },
                     "not all that was put is in the shared storage"));
  }
  return {};
}

}  // namespace precis::bench
