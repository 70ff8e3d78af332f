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

// The loop's. Takes 5 MiB: of blocks that fall on the same place the last one is kept.
class PathDigests {
 public:
  PathDigests();
  // As precis::hash_path().
  TokenPath hash(const Digest& root, std::span<const TokenId> tokens, std::uint32_t block_tokens);
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
