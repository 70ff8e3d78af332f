// The nodes of a cluster and what they own, as a client knows it (precis/shards.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "precis/messages.h"
#include "precis/shards.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// The destination of a call. The views must live as long as the call.
struct AnyNode {};
struct NodeAt {
  std::string address;
};
struct OwnerOfShard {
  std::uint32_t shard = 0;
};
struct OwnerOfSession {
  std::string_view name;
};
struct OwnerOfPath {
  const Digest& model;
  std::string_view adapter;
  std::span<const TokenId> tokens;
  std::uint32_t block_tokens;
};
using Target = std::variant<AnyNode, NodeAt, OwnerOfShard, OwnerOfSession, OwnerOfPath>;

// The owner of the session that a put names, or else of its path.
Target owner_of(const msg::BeginPut& put, std::uint32_t block_tokens);

class ClusterMap {
 public:
  // kUnavailable if the node that sent `state` is no member of the cluster, kCorruption if an
  // address in it does not have the form HOST:PORT.
  static Result<ClusterMap> from(msg::ClusterState state);

  // Requires a target with an owner.
  std::uint32_t shard_of(const Target& target) const;
  // The address of the owner. kUnavailable if the shard has none now.
  Result<std::string> owner(std::uint32_t shard) const;
  // The addresses of the live nodes.
  std::vector<std::string> addresses() const;
  bool shares_storage() const { return state_.shared; }

 private:
  msg::ClusterState state_;
  Forks forks_;
};

}  // namespace precis
