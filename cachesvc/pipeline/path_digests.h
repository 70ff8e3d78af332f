// Hashes paths, and remembers blocks' digests: a session's next path begins with its last one, and
// what is looked up is put soon after. Told by the block before and the block's own tokens, so what
// paths share is kept once.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "precis/block_digest.h"

namespace precis {

// The loop's.
class PathDigests {
 public:
  // As precis::hash_path().
  TokenPath hash(const Digest& root, std::span<const TokenId> tokens, std::uint32_t block_tokens);

 private:
  // The digest before and the block's tokens, as they lie in memory.
  struct Seeded {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const;
  };
  using Known = std::unordered_map<std::string, Digest, Seeded, std::equal_to<>>;

  const Digest* find(std::string_view key);
  void learn(std::string_view key, const Digest& digest);

  // What is asked for moves from `older_` to `newer_`, which takes the other's place when full.
  Known newer_, older_;
  std::size_t newer_bytes_ = 0;
};

}  // namespace precis
