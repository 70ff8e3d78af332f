// Decides which node owns which shard of a cluster (shards.h). Pure.
//
// Nodes of all versions must decide alike, so a change here needs a new format of the table
// (cachesvc/cluster/view.h). A change of the members changes the table of owners as little as
// possible. Hashing shards to nodes needs no table, but spreads them too unevenly over
// many nodes (docs/design/cluster.md has the measurements).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace precis::cluster {

// A node that may own shards.
struct Member {
  std::uint64_t key = 0;     // member_key() of the node's name; differs between members
  std::uint32_t weight = 0;  // its share of the shards is in proportion; 0: it shall own none
};

// A hash of a node's name, the same on every machine and in every version.
std::uint64_t member_key(std::string_view node);

inline constexpr std::uint32_t kNobody = 0xffffffff;

// How many shards each member shall own: shards * weight / the sum of all weights, rounded down or
// up. Members that own more now (`owned`) are rounded up first. All are 0 if no member has a
// weight.
std::vector<std::uint32_t> shard_quotas(std::span<const Member> members,
                                        std::span<const std::uint32_t> owned, std::uint32_t shards);

// Returns the new owner of each shard, as an index into `members`, given the present ones (kNobody:
// it has none). Members own shard_quotas() then. Only shards without an owner and those above an
// owner's quota move. Each goes to the member with room that a hash of both prefers, so that a node
// that leaves and returns gets back most of what it had. Does not depend on the order of the
// members. Every shard has an owner afterwards, unless no member has a weight.
std::vector<std::uint32_t> place_shards(std::span<const Member> members,
                                        std::vector<std::uint32_t> owners);

}  // namespace precis::cluster
