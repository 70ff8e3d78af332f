// Shards: the parts into which a cluster divides all paths. Each shard is owned by one node
// (cachesvc/cluster/placement.h). Clients and nodes compute the shard of a path by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "precis/limits.h"
#include "precis/types.h"

namespace precis {

using limits::kShards;

// Block digests beneath which one shard would hold too much, such as the first block of a system
// prompt that all requests of a service begin with. The value is a number of blocks: paths of at
// least so many are divided by the digest of the last of them.
using Forks = std::unordered_map<Digest, std::uint32_t>;

// Returns the index of the block whose digest decides the path's shard: the first block, or the one
// to which `forks` lead from there. A path that grows keeps its deciding block unless it grows past
// a fork. Requires at least one block. `blocks` are the digests of the path's whole blocks.
std::size_t deciding_block(std::span<const Digest> blocks, const Forks& forks);

// The shard of all paths with this deciding block.
std::uint32_t shard_of(const Digest& deciding_block);

}  // namespace precis
