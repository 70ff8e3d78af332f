#include "cachesvc/pipeline/path_hasher.h"

#include <string>

#include "precis/limits.h"

namespace precis {

Status PathHasher::check(std::size_t num_tokens, std::uint32_t block_tokens) {
  constexpr std::size_t kMost = limits::kPathBlocksMax;
  const std::size_t blocks = num_tokens / block_tokens;
  if (blocks <= kMost) return {};
  const std::size_t least = num_tokens / (kMost + 1) + 1;  // with it there are at most kMost blocks
  return Status::invalid(std::to_string(num_tokens) + " tokens in blocks of " +
                         std::to_string(block_tokens) + " are " + std::to_string(blocks) +
                         " blocks, at most " + std::to_string(kMost) +
                         " are allowed; use a larger block_tokens, at least " +
                         std::to_string(least) + ", or a shorter path");
}

}  // namespace precis
