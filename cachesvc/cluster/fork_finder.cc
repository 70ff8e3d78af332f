#include "cachesvc/cluster/fork_finder.h"

#include <algorithm>
#include <map>

#include "precis/little_endian.h"

namespace precis::cluster {
namespace {

// Blocks whose puts are counted. There are at most 1 / kShare that matter at a time.
constexpr std::size_t kRowsMax = 4096;
// Puts before the last so many count half.
constexpr std::uint64_t kAgePuts = 1 << 16;
constexpr std::size_t kSamplesMax = 64;  // twice the rows that can have a kShare
// The most that Row::wanted grows to, while the paths beneath a block do not divide.
constexpr std::uint64_t kWantedMax = 1 << 16;

std::uint64_t beginning_of(const Digest& digest) {
  return LeReader(std::as_bytes(std::span(digest.bytes))).get<std::uint64_t>();
}

}  // namespace

std::optional<std::uint32_t> fork_depth(const std::vector<std::vector<std::uint64_t>>& paths) {
  const auto all = static_cast<double>(paths.size());
  // Digests are chained, so paths with the same digest of one block agree up to that block.
  for (std::size_t k = 0; k < ForkFinder::kBlocksMax; ++k) {
    std::map<std::uint64_t, std::size_t> groups;
    std::size_t count = 0, largest = 0;
    for (const auto& path : paths) {
      if (path.size() <= k) continue;
      ++count;
      largest = std::max(largest, ++groups[path[k]]);
    }
    if (static_cast<double>(count) < all / 2) return {};
    if (groups.size() < ForkFinder::kGroupsMin) continue;
    if (static_cast<double>(largest) > ForkFinder::kLargestGroup * all) continue;
    return static_cast<std::uint32_t>(k + 1);
  }
  return {};
}

std::optional<std::uint32_t> ForkFinder::add(const Put& put) {
  if (put.writers > 1 && random_() % put.writers != 0) return {};
  if (++puts_ >= kAgePuts || rows_.size() >= kRowsMax) age();
  Row& row = rows_[put.decides];
  row.tokens += static_cast<double>(put.tokens);
  tokens_ += static_cast<double>(put.tokens);
  if (++row.puts < row.wanted || row.tokens < kShare * tokens_) return {};
  if (random_() % 2 == 0) return {};  // so that the sample spans twice as many puts
  if (row.sample.empty() && ++samples_ > kSamplesMax) {
    drop_samples();
    samples_ = 1;
  }
  Path path;
  for (const Digest& digest : put.blocks(kBlocksMax)) path.push_back(beginning_of(digest));
  row.sample.push_back(std::move(path));
  if (row.sample.size() < kSample) return {};
  const auto depth = fork_depth(row.sample);
  row.sample.clear();
  --samples_;
  row.puts = 0;
  row.wanted = std::min(2 * row.wanted, kWantedMax);
  return depth;
}

void ForkFinder::drop_samples() {
  for (auto& [block, row] : rows_) row.sample = {};
  samples_ = 0;
}

// Halves what was counted, and forgets the blocks with the lowest counts.
void ForkFinder::age() {
  puts_ = 0;
  drop_samples();
  double least = 0;
  if (rows_.size() >= kRowsMax) {
    std::vector<double> counts;
    for (const auto& [block, row] : rows_) counts.push_back(row.tokens);
    const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
    std::ranges::nth_element(counts, middle);
    least = *middle;
  }
  std::erase_if(rows_, [&](const auto& row) { return row.second.tokens <= least; });
  for (auto& [block, row] : rows_) row.tokens /= 2;
  tokens_ /= 2;
}

}  // namespace precis::cluster
