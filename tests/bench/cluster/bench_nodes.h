// The nodes, prompts and clients of ./dev bench cluster. This machine has too few cores for several
// nodes at full speed, so the bench counts the CPU time of each node's process per byte. If each
// node had one core to itself, the one that first has no CPU time left would limit all.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/cluster_node.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/random_kv.h"

namespace precis::bench {

using Prompt = std::vector<TokenId>;

// The CPU time that a node's process has used since its start, and the bytes that it has sent.
struct NodeUse {
  double cpu_seconds = 0;
  std::uint64_t pushed_bytes = 0;
};

class BenchNodes {
 public:
  // `settings`: further lines of the nodes' configuration.
  explicit BenchNodes(std::size_t nodes, const std::string& settings = "");

  // Waits until every node serves shards, and connects the clients.
  Status connect(std::size_t clients);
  // Puts random KV under new tokens, 32 KiB of it for each.
  Result<Prompt> put(std::uint32_t tokens, Durability durability = Durability::kWal);
  Result<LookupMatch> lookup(const Prompt& prompt) { return clients_[0]->lookup(model_, prompt); }
  // The node that owns what was found.
  std::size_t owner_of(const LookupMatch& match);
  // The first client gets the prompt. Returns the bytes.
  Result<std::uint64_t> get(const Prompt& prompt) { return get(*clients_[0], prompt); }
  // All clients get the prompts in turn for so long. Returns the bytes.
  Result<std::uint64_t> read(const std::vector<Prompt>& prompts, double seconds);
  Result<std::vector<NodeUse>> use();
  Result<std::vector<NodeUse>> use_since(const std::vector<NodeUse>& before);
  // Starts the only node again: its RAM is empty, and its disk too unless it keeps it.
  Status restart(bool keeps_disk);
  // Waits until all that was put is in the storage that the nodes share.
  Status settle_uploads();

 private:
  Status settle(testing::Node& node) const;
  Result<std::uint64_t> get(Client& client, const Prompt& prompt) const;

  const testing::EtcdMembers etcd_;
  std::deque<testing::Node> nodes_;
  std::vector<std::shared_ptr<Client>> clients_;
  Model model_;
  std::mt19937 random_{1};
  std::map<std::uint32_t, testing::Kv> kv_;  // by its tokens
};

}  // namespace precis::bench
