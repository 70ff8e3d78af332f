#include "precis/shards.h"

#include "precis/block_digest.h"
#include "precis/little_endian.h"

namespace precis {
namespace {

// The part of a session's name that decides.
std::string_view deciding_part(std::string_view name) {
  const auto begin = name.find('{');
  if (begin == std::string_view::npos) return name;
  const auto end = name.find('}', begin + 1);
  if (end == std::string_view::npos || end == begin + 1) return name;
  return name.substr(begin + 1, end - begin - 1);
}

}  // namespace

Digest deciding_block(std::size_t num_blocks, const std::function<Digest(std::size_t)>& block,
                      const Forks& forks) {
  PRECIS_CHECK(num_blocks > 0);
  std::size_t decides = 0;
  for (;;) {
    const Digest digest = block(decides);
    const auto fork = forks.find(digest);
    if (fork == forks.end() || fork->second > num_blocks) return digest;
    if (fork->second <= decides + 1) return digest;  // it names no later block
    decides = fork->second - 1;
  }
}

std::uint32_t shard_of(const Digest& deciding_block) {
  LeReader bytes(std::as_bytes(std::span(deciding_block.bytes)));
  return static_cast<std::uint32_t>(bytes.get<std::uint64_t>() % kShards);
}

Digest deciding_block(const Digest& shard_root, std::span<const TokenId> tokens,
                      std::uint32_t block_tokens, const Forks& forks) {
  Digest digest = shard_root;
  std::size_t hashed = 0;  // blocks
  const auto block = [&](std::size_t k) {
    for (; hashed <= k; ++hashed) {
      digest = block_digest(digest, tokens.subspan(hashed * block_tokens, block_tokens));
    }
    return digest;
  };
  const std::size_t num_blocks = tokens.size() / block_tokens;
  return num_blocks == 0 ? digest : deciding_block(num_blocks, block, forks);
}

std::uint32_t shard_of_session(const Digest& space, std::string_view name) {
  return shard_of(session_digest(space, deciding_part(name)));
}

}  // namespace precis
