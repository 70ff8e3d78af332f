// Hashes paths, and remembers blocks' digests: a session's next path begins with its last one, and
// what is looked up is put soon after. Told by the block before and the block's own tokens, so what
// paths share is kept once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "precis/block_digest.h"

namespace precis {

// One thread's. Takes 5 MiB: of blocks that fall on the same place the last one is kept.
class PathDigests {
 public:
  PathDigests();
  // As precis::hash_path().
  TokenPath hash(const Digest& root, std::span<const TokenId> tokens, std::uint32_t block_tokens);
  // Hashes on from where `path.blocks` ends: at most `tokens_max` tokens, and at most `hashed_max`
  // of blocks that are not remembered, but a block at least. Returns whether the path is hashed.
  bool extend(TokenPath& path, std::size_t tokens_max, std::size_t hashed_max);
  // Blocks that were not remembered.
  std::uint64_t hashed() const { return hashed_; }

 private:
  // Larger blocks than a model has unless it says so are hashed every time.
  static constexpr std::size_t kTokensMax = 64;
  struct Known {
    Digest before;
    Digest digest;
    std::uint32_t count = 0;  // of tokens; 0: nothing is known here
    std::array<TokenId, kTokensMax> tokens;
  };
  const Digest& digest_of(const Digest& before, std::span<const TokenId> block);

  std::vector<Known> known_;
  std::uint64_t hashed_ = 0;
};

}  // namespace precis
