#include "cachesvc/pipeline/path_digests.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <random>
#include <utility>

namespace precis {
namespace {

// Of each of the two tables: some twenty paths of 32K tokens.
constexpr std::size_t kBytesMax = std::size_t{4} << 20;
// Of the table itself, for each block.
constexpr std::size_t kNodeBytes = sizeof(std::string) + sizeof(Digest) + 4 * sizeof(void*);

}  // namespace

// Seeded, for the tokens are the clients'.
std::size_t PathDigests::Seeded::operator()(std::string_view key) const {
  static const std::uint64_t seed = std::random_device{}();
  return XXH3_64bits_withSeed(key.data(), key.size(), seed);
}

const Digest* PathDigests::find(std::string_view key) {
  if (const auto found = newer_.find(key); found != newer_.end()) return &found->second;
  const auto found = older_.find(key);
  if (found == older_.end()) return nullptr;
  learn(key, Digest(found->second));
  return &newer_.find(key)->second;
}

void PathDigests::learn(std::string_view key, const Digest& digest) {
  const std::size_t bytes = key.size() + kNodeBytes;
  if (newer_bytes_ + bytes > kBytesMax) {
    older_ = std::exchange(newer_, {});
    newer_bytes_ = 0;
  }
  if (newer_.emplace(key, digest).second) newer_bytes_ += bytes;
}

TokenPath PathDigests::hash(const Digest& root, std::span<const TokenId> tokens,
                            std::uint32_t block_tokens) {
  TokenPath path{root, tokens, block_tokens, {}};
  const std::size_t count = tokens.size() / block_tokens;
  path.blocks.reserve(count);
  std::string key(sizeof(Digest) + block_tokens * sizeof(TokenId), '\0');
  const auto write_key = [&](std::size_t k) -> const std::string& {
    const Digest& before = k == 0 ? root : path.blocks[k - 1];
    std::memcpy(key.data(), before.bytes.data(), sizeof before.bytes);
    std::memcpy(key.data() + sizeof before.bytes, &tokens[k * block_tokens],
                block_tokens * sizeof(TokenId));
    return key;
  };
  while (path.blocks.size() < count) {
    const Digest* const known = find(write_key(path.blocks.size()));
    if (known == nullptr) break;
    path.blocks.push_back(*known);
  }
  const std::size_t first = path.blocks.size();
  const auto rest = block_digests(first == 0 ? root : path.blocks.back(),
                                  tokens.subspan(first * block_tokens), block_tokens);
  path.blocks.insert(path.blocks.end(), rest.begin(), rest.end());
  for (std::size_t k = first; k < count; ++k) learn(write_key(k), path.blocks[k]);
  return path;
}

}  // namespace precis
