#include "kernels/allocate/contest.h"

#include <algorithm>
#include <bit>

#include "kernels/allocate/allocate_op.h"

namespace precis::kernels {
namespace {

// Merges the competitors' scores, best first, ties to the lower index. A tournament tree whose
// leaves are the competitors' next scores: taking a score costs one walk from its leaf to the root.
class FlatMerge {
 public:
  explicit FlatMerge(const Ranks& ranks) : leaves_(std::bit_ceil(ranks.size())) {
    nodes_.resize(2 * leaves_);
    for (const auto& of_competitor : ranks) {
      left_.push_back({of_competitor.data(), of_competitor.data() + of_competitor.size()});
      nodes_[leaves_ + left_.size() - 1] = bid(left_.size() - 1);
    }
    for (std::size_t i = leaves_ - 1; i > 0; --i) {
      nodes_[i] = std::max(nodes_[2 * i], nodes_[2 * i + 1]);
    }
  }
  // How many entries a competitor has left.
  std::size_t left(std::size_t competitor) const {
    return static_cast<std::size_t>(left_[competitor].end - left_[competitor].next);
  }
  void take(std::size_t competitor) {
    ++left_[competitor].next;
    std::size_t i = leaves_ + competitor;
    Bid best = nodes_[i] = bid(competitor);
    while (i > 1) {
      best = std::max(best, nodes_[i ^ 1]);
      nodes_[i /= 2] = best;
    }
  }
  // Takes the best remaining entry; false if there is none.
  bool take_best(std::uint32_t& competitor) {
    const Bid best = nodes_[1];
    if (best == kNone) return false;
    competitor = 0xffffffffu - static_cast<std::uint32_t>(best);
    take(competitor);
    return true;
  }

 private:
  // Higher is better: rank + 1 (the rank of +infinity leaves room for the 1), then the lower index.
  // 0 if a competitor has no entry left.
  using Bid = std::uint64_t;
  static constexpr Bid kNone = 0;
  Bid bid(std::size_t competitor) const {
    const Left& l = left_[competitor];
    if (l.next == l.end) return kNone;
    return (std::uint64_t{*l.next} + 1) << 32 | (0xffffffffu - competitor);
  }

  struct Left {
    const std::uint32_t *next, *end;
  };
  std::vector<Left> left_;
  std::size_t leaves_;
  std::vector<Bid> nodes_;  // [2 * leaves_], the root at 1
};

}  // namespace

std::vector<std::uint32_t> contest(const Recipe& recipe, const Ranks& ranks,
                                   std::uint32_t protected_count, std::uint64_t seats) {
  const std::size_t competitors = ranks.size();
  std::vector<std::uint32_t> takers(seats + competitors);
  FlatMerge merge(ranks);
  std::uint64_t taken = 0, sure = 0;
  for (std::uint64_t average = 1; taken < seats; ++average) {
    // Every competitor already holds the guarantee of the round before, so this pass is needed only
    // if the guarantee grows.
    if (const std::uint64_t now = guaranteed_entries(recipe, protected_count, average);
        now > sure) {
      sure = now;
      for (std::uint32_t c = 0; c < competitors; ++c) {
        const std::size_t left = merge.left(c);
        if (left == 0 || ranks[c].size() - left >= sure) continue;
        merge.take(c);
        takers[taken++] = c;
      }
    }
    while (taken < average * competitors && merge.take_best(takers[taken])) ++taken;
    if (taken < average * competitors) break;
  }
  takers.resize(std::min(taken, seats));
  return takers;
}

std::vector<std::uint64_t> flat_counts(const Ranks& ranks, std::uint64_t seats) {
  FlatMerge merge(ranks);
  std::uint32_t best = 0;
  for (std::uint64_t i = 0; i < seats && merge.take_best(best); ++i) {
  }
  std::vector<std::uint64_t> counts;
  for (std::size_t c = 0; c < ranks.size(); ++c) counts.push_back(ranks[c].size() - merge.left(c));
  return counts;
}

}  // namespace precis::kernels
