#include "precis/shards.h"

#include "precis/little_endian.h"

namespace precis {

std::size_t deciding_block(std::span<const Digest> blocks, const Forks& forks) {
  PRECIS_CHECK(!blocks.empty());
  std::size_t decides = 0;
  for (;;) {
    const auto fork = forks.find(blocks[decides]);
    if (fork == forks.end() || fork->second > blocks.size()) return decides;
    if (fork->second <= decides + 1) return decides;  // it does not lead deeper
    decides = fork->second - 1;
  }
}

std::uint32_t shard_of(const Digest& deciding_block) {
  LeReader bytes(std::as_bytes(std::span(deciding_block.bytes)));
  return static_cast<std::uint32_t>(bytes.get<std::uint64_t>() % kShards);
}

}  // namespace precis
