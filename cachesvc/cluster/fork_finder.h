// Finds the blocks beneath which one shard would hold too much, and where the paths beneath them
// divide (precis/shards.h), from the puts that a node gets. Not thread-safe.
//
// A block becomes a fork when at least kShare of the tokens of recent puts are beneath it, and
// those puts are not alike: of a sample of their paths, the largest group that agrees up to the
// depth of the fork is at most kLargestGroup, and there are at least kGroupsMin groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "precis/types.h"

namespace precis::cluster {

class ForkFinder {
 public:
  // A node's fair share of an even load is spread over hundreds of blocks, so a thirty-second of
  // it beneath one block is uneven, and still little enough to be placed well.
  static constexpr double kShare = 1.0 / 32, kLargestGroup = 0.75;
  static constexpr std::size_t kGroupsMin = 8, kSample = 32;
  static constexpr std::size_t kBlocksMax = 1024;  // a fork leads to one of the first so many

  explicit ForkFinder(std::uint64_t seed) : random_(seed) {}

  struct Put {
    std::uint64_t tokens;   // of its path
    std::uint32_t writers;  // each begins the put, and one of them counts
    const Digest& decides;  // the deciding block
    // Returns the digests of the first `count` blocks of the path, or of all if it has fewer. It is
    // called for few puts.
    std::function<std::vector<Digest>(std::size_t count)> blocks;
  };
  // Returns the number of blocks of a new fork at the deciding block.
  std::optional<std::uint32_t> add(const Put& put);

 private:
  using Path = std::vector<std::uint64_t>;  // the beginnings of its digests
  struct Row {
    double tokens = 0;
    std::uint64_t puts = 0, wanted = 64;  // so many until a sample is taken
    std::vector<Path> sample;
  };
  void age();
  void drop_samples();

  std::minstd_rand random_;
  std::unordered_map<Digest, Row> rows_;  // by deciding block
  double tokens_ = 0;                     // of all puts, also beneath blocks without a row
  std::uint64_t puts_ = 0;                // since the last age()
  std::size_t samples_ = 0;               // rows with a sample, which may take 256 KiB
};

// Returns the number of blocks of the shortest beginnings at which these paths divide as a fork
// must; absent if they do not.
std::optional<std::uint32_t> fork_depth(const std::vector<std::vector<std::uint64_t>>& paths);

}  // namespace precis::cluster
