#include "client/src/cluster_map.h"

#include <utility>

#include "cachesvc/net/address.h"
#include "precis/block_digest.h"

namespace precis {

Target owner_of(const msg::BeginPut& put, std::uint32_t block_tokens) {
  if (!put.session.empty()) return OwnerOfSession{put.session};
  return OwnerOfPath{put.model, put.adapter, put.tokens, block_tokens};
}

Result<ClusterMap> ClusterMap::from(msg::ClusterState state) {
  if (state.state != "member" || !state.space || state.owners.empty()) {
    return Status::unavailable("the node '" + state.node + "' is not a member of the cluster '" +
                               state.name + "' now" +
                               (state.error.empty() ? "" : ": " + state.error));
  }
  for (const msg::ClusterNode& node : state.nodes) {
    const Status address = node.live ? split_address(node.address).status() : Status();
    if (!address.ok())
      return Status::corruption("the node '" + node.name + "': " + address.message());
  }
  ClusterMap map;
  for (const msg::Fork& fork : state.forks) map.forks_[fork.block] = fork.blocks;
  map.state_ = std::move(state);
  return map;
}

std::uint32_t ClusterMap::shard_of(const Target& target) const {
  if (const auto* shard = std::get_if<OwnerOfShard>(&target)) return shard->shard;
  if (const auto* session = std::get_if<OwnerOfSession>(&target)) {
    return shard_of_session(*state_.space, session->name);
  }
  const auto& path = std::get<OwnerOfPath>(target);
  const Digest root = shard_root(*state_.space, path.model, path.adapter);
  return precis::shard_of(deciding_block(root, path.tokens, path.block_tokens, forks_));
}

Result<std::string> ClusterMap::owner(std::uint32_t shard) const {
  const std::uint32_t owner = state_.owners.at(shard);
  if (owner < state_.nodes.size() && state_.nodes[owner].live) return state_.nodes[owner].address;
  return Status::unavailable("no node of the cluster '" + state_.name + "' owns the shard " +
                             std::to_string(shard) + " now");
}

std::vector<std::string> ClusterMap::addresses() const {
  std::vector<std::string> addresses;
  for (const msg::ClusterNode& node : state_.nodes) {
    if (node.live) addresses.push_back(node.address);
  }
  return addresses;
}

}  // namespace precis
