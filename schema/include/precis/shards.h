// Shards: the parts into which a cluster divides all paths and sessions. Each shard is owned by one
// node (placement.h). Clients and nodes compute shards by themselves.
//
// The digests of blocks that decide shards are chained from shard_root(), and not from path_root():
// clients must compute them, and do not know their tenant's salt. The service tells them
// shard_space() instead (block_digest.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "precis/limits.h"
#include "precis/types.h"

namespace precis {

using limits::kShards;

// Blocks whose paths would be too much for one shard, such as the first block of a system prompt
// that all requests of a service begin with. The value is a number of blocks, n: a path of at least
// n blocks is divided by its n-th block.
using Forks = std::unordered_map<Digest, std::uint32_t>;

// Returns the digest of the block that decides the path's shard: of the first block, or of the one
// to which `forks` lead from there. A path that grows keeps its deciding block unless it grows past
// a fork. `num_blocks`: the path's whole blocks, at least one. `block`: returns the digest of block
// k; it is called for growing k.
Digest deciding_block(std::size_t num_blocks, const std::function<Digest(std::size_t)>& block,
                      const Forks& forks);

// The shard of all paths with this deciding block.
std::uint32_t shard_of(const Digest& deciding_block);

// deciding_block() of a path; the root, if it has no whole block.
Digest deciding_block(const Digest& shard_root, std::span<const TokenId> tokens,
                      std::uint32_t block_tokens, const Forks& forks);

// The shard of a session, and of all paths that are put or looked up with its name. If the name has
// a part in braces, only the first such part decides, so that sessions can be kept together:
// "{chat-7}" and "{chat-7}/b" are in the shard of "chat-7".
std::uint32_t shard_of_session(const Digest& space, std::string_view name);

}  // namespace precis
