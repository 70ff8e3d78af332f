#include "cachesvc/pipeline/path_digests.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace precis {
namespace {

constexpr std::size_t kPlaces = 1u << 14;  // slots; a million tokens in blocks of the default size

}  // namespace

PathDigests::PathDigests(std::uint64_t seed) : seed_(seed), known_(kPlaces) {}

std::size_t PathDigests::slot_of(const Digest& before, std::span<const TokenId> block) const {
  std::uint64_t chained = 0;
  std::memcpy(&chained, before.bytes.data(), sizeof chained);
  return XXH3_64bits_withSeed(block.data(), block.size_bytes(), seed_ ^ chained) % kPlaces;
}

const Digest& PathDigests::digest_of(const Digest& before, std::span<const TokenId> block) {
  Known& here = known_[slot_of(before, block)];
  if (here.count != block.size() || here.before != before ||
      !std::equal(block.begin(), block.end(), here.tokens.begin())) {
    here.before = before;
    here.count = static_cast<std::uint32_t>(block.size());
    std::copy(block.begin(), block.end(), here.tokens.begin());
    here.digest = block_digest(before, block);
    ++hashed_;
  }
  return here.digest;
}

bool PathDigests::extend(TokenPath& path, std::size_t tokens_max, std::size_t hashed_max) {
  const std::size_t block_tokens = path.block_tokens;
  const std::size_t all = path.tokens.size() / block_tokens;
  const std::size_t end =
      std::min(all, path.blocks.size() + std::max<std::size_t>(1, tokens_max / block_tokens));
  path.blocks.reserve(all);
  const std::uint64_t hashed_before = hashed_;
  while (path.blocks.size() < end) {
    const Digest& before = path.blocks.empty() ? path.root : path.blocks.back();
    const auto block = path.tokens.subspan(path.blocks.size() * block_tokens, block_tokens);
    if (block_tokens > kTokensMax) {
      path.blocks.push_back(block_digest(before, block));
      ++hashed_;
    } else {
      path.blocks.push_back(digest_of(before, block));
    }
    if ((hashed_ - hashed_before) * block_tokens >= hashed_max) break;
  }
  return path.blocks.size() == all;
}

}  // namespace precis
