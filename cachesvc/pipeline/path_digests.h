// Hashes paths and caches the digests of blocks: a session's next path begins with its last one,
// and a path that is looked up is often put soon after. The key is the digest before the block and
// the block's tokens, so the shared beginning of paths is cached once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "precis/block_digest.h"

namespace precis {

// For one thread. Takes 5 MiB. If several blocks map to one slot, it keeps the last one.
class PathDigests {
 public:
  // `seed` is random and secret, because clients choose the tokens.
  explicit PathDigests(std::uint64_t seed);
  // Continues to hash where `path.blocks` ends: at least one block, and at most `tokens_max`
  // tokens. Stops after `hashed_max` tokens of blocks that are not cached. Returns whether the
  // whole path is hashed. Then `path` is as hash_path() returns it.
  bool extend(TokenPath& path, std::size_t tokens_max, std::size_t hashed_max);
  // The number of blocks that were not cached.
  std::uint64_t hashed() const { return hashed_; }

 private:
  // Blocks above this size, the default of models, are hashed every time.
  static constexpr std::size_t kTokensMax = 64;
  struct Known {
    Digest before;
    Digest digest;
    std::uint32_t count = 0;  // tokens in the block; 0: the slot is empty
    std::array<TokenId, kTokensMax> tokens;
  };
  std::size_t slot_of(const Digest& before, std::span<const TokenId> block) const;
  const Digest& digest_of(const Digest& before, std::span<const TokenId> block);

  const std::uint64_t seed_;
  std::vector<Known> known_;
  std::uint64_t hashed_ = 0;
};

}  // namespace precis
