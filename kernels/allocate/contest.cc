#include "kernels/allocate/contest.h"

#include <algorithm>
#include <bit>

#include "kernels/allocate/allocate_op.h"

namespace precis::kernels {
namespace {

// Competitors by their next score, best first, ties to the lower index: a tournament whose leaves
// are the competitors' next scores, so that a taken one costs a walk from its leaf to the root.
class FlatMerge {
 public:
  explicit FlatMerge(const Ranks& ranks)
      : ranks_(ranks), taken_(ranks.size()), leaves_(std::bit_ceil(ranks.size())) {
    nodes_.resize(2 * leaves_);
    for (std::size_t c = 0; c < ranks.size(); ++c) nodes_[leaves_ + c] = bid(c);
    for (std::size_t i = leaves_ - 1; i > 0; --i) nodes_[i] = winner(i);
  }
  std::size_t taken(std::size_t competitor) const { return taken_[competitor]; }
  bool has_more(std::size_t competitor) const {
    return taken_[competitor] < ranks_[competitor].size();
  }
  void take(std::size_t competitor) {
    ++taken_[competitor];
    std::size_t i = leaves_ + competitor;
    nodes_[i] = bid(competitor);
    while (i > 1) {
      i /= 2;
      nodes_[i] = winner(i);
    }
  }
  // Takes the best remaining entry; false where there is none.
  bool take_best(std::size_t& competitor) {
    const Bid best = nodes_[1];
    if (best == kNone) return false;
    competitor = 0xffffffffu - static_cast<std::uint32_t>(best);
    take(competitor);
    return true;
  }

 private:
  // Higher is better: rank + 1 (the rank of +infinity leaves room for it), then the lower index. 0
  // where a competitor has nothing more.
  using Bid = std::uint64_t;
  static constexpr Bid kNone = 0;
  Bid bid(std::size_t competitor) const {
    if (!has_more(competitor)) return kNone;
    const std::uint64_t rank = ranks_[competitor][taken_[competitor]];
    return (rank + 1) << 32 | (0xffffffffu - competitor);
  }
  Bid winner(std::size_t node) const { return std::max(nodes_[2 * node], nodes_[2 * node + 1]); }

  const Ranks& ranks_;
  std::vector<std::size_t> taken_;
  std::size_t leaves_;
  std::vector<Bid> nodes_;  // [2 * leaves_], the root at 1
};

}  // namespace

std::vector<std::uint32_t> contest(const Recipe& recipe, const Ranks& ranks,
                                   std::uint32_t protected_count, std::uint64_t seats) {
  std::vector<std::uint32_t> takers;
  takers.reserve(seats + ranks.size());
  FlatMerge merge(ranks);
  std::size_t best = 0;
  for (std::uint64_t average = 1; takers.size() < seats; ++average) {
    const std::uint64_t sure = guaranteed_entries(recipe, protected_count, average);
    for (std::size_t c = 0; c < ranks.size(); ++c) {
      if (merge.taken(c) >= sure || !merge.has_more(c)) continue;
      merge.take(c);
      takers.push_back(static_cast<std::uint32_t>(c));
    }
    while (takers.size() < average * ranks.size() && merge.take_best(best)) {
      takers.push_back(static_cast<std::uint32_t>(best));
    }
    if (takers.size() < average * ranks.size()) break;
  }
  if (takers.size() > seats) takers.resize(seats);
  return takers;
}

std::vector<std::uint64_t> flat_counts(const Ranks& ranks, std::uint64_t seats) {
  FlatMerge merge(ranks);
  std::size_t best = 0;
  for (std::uint64_t i = 0; i < seats && merge.take_best(best); ++i) {
  }
  std::vector<std::uint64_t> counts;
  for (std::size_t c = 0; c < ranks.size(); ++c) counts.push_back(merge.taken(c));
  return counts;
}

}  // namespace precis::kernels
