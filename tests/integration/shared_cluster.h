// Clusters of nodes that share a storage, whichever it is.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/shared/shared_tier.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace precis::testing {

inline constexpr std::uint32_t kTokens = 192;  // three blocks

struct Prompt {
  std::vector<TokenId> tokens;
  Kv kv;
};

// The storage that the nodes of all test cases share; each cluster has a name of its own in it.
class NodesStorage {
 public:
  virtual ~NodesStorage() = default;
  virtual std::string node_settings() const = 0;  // lines of a configuration
  virtual std::unique_ptr<SharedTier> connect(const std::string& cluster_name) const = 0;
  virtual void signal(int number) const = 0;  // to its processes
};
// main() makes it.
extern std::unique_ptr<NodesStorage> nodes_storage;

struct Cluster {
  explicit Cluster(const std::string& name, const std::string& settings = "",
                   std::uint32_t lease = 2)
      : more(nodes_storage->node_settings() + "cluster_name = '" + name + "'\n" + settings),
        lease_s(lease) {
    await_all();
  }
  const std::string more;
  const std::uint32_t lease_s;
  EtcdMembers etcd;
  Node a{etcd, "a", more, lease_s}, b{etcd, "b", more, lease_s}, c{etcd, "c", more, lease_s};
  std::mt19937 random{1};
  std::shared_ptr<Client> client = a.connect_as("red");
  const Model model = client->register_model(tiny_model()).value();

  static bool is_loaded(const msg::ClusterState& state) {
    return state.shared && state.loading == 0 && state.shared_error.empty();
  }
  void await_loaded(std::vector<std::string> names) {
    for (Node* const node : {&a, &b, &c}) {
      if (std::ranges::find(names, node->name()) == names.end()) continue;
      await(*node, [&](const msg::ClusterState& state) {
        return shared_by(names)(state) && is_loaded(state);
      });
    }
  }
  void await_all() { await_loaded({"a", "b", "c"}); }
  Prompt prompt() {
    Prompt made{random_tokens(random, kTokens), {}};
    made.kv = random_kv(random, tiny_model(), 0, kTokens);
    return made;
  }
  Status try_put(const Prompt& prompt, Durability durability, const std::string& session = "",
                 SegmentId* id = nullptr) {
    PutOptions options = keep_most();
    options.session = session;
    auto stored = put_all(*client, model, prompt.tokens, prompt.kv, options, durability);
    if (stored.ok() && id != nullptr) *id = stored->id;
    return stored.status();
  }
  SegmentId put(const Prompt& prompt, Durability durability, const std::string& session = "") {
    SegmentId id;
    const Status status = try_put(prompt, durability, session, &id);
    INFO(status.to_string());
    REQUIRE(status.ok());
    return id;
  }
  std::vector<Prompt> put_some(std::size_t count, Durability durability) {
    std::vector<Prompt> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back(prompt());
      put(made.back(), durability);
    }
    return made;
  }
};

// The error if the client does not read the prompt's rows.
inline std::string read_error(Client& client, const Model& model, const Prompt& prompt,
                              const std::string& session = "") {
  LookupOptions options;
  options.session = session;
  const auto match = client.lookup(model, prompt.tokens, options);
  if (!match.ok()) return match.status().to_string();
  if (match->matched_tokens != prompt.tokens.size()) {
    return std::to_string(match->matched_tokens) + " tokens are matched";
  }
  if (!session.empty()) return client.get(*match).status().message();
  const auto read = read_all(client, model, prompt.tokens);
  if (!read.ok()) return read.status().to_string();
  return rows_are_of(*read, {&prompt.kv}) ? "" : "other rows";
}

// Whether the node owns shards, and has loaded all of them.
inline bool is_loaded(const msg::ClusterState& now) {
  return now.loading == 0 && now.state == "member" && shards_of(now, now.node) > 0;
}

}  // namespace precis::testing
