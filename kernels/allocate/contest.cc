#include "kernels/allocate/contest.h"

#include <queue>

#include "kernels/allocate/allocate_op.h"

namespace precis::kernels {
namespace {

// Competitors by their next score, best first, ties to the lower index. A queued score may be that
// of an entry its competitor has since been given; such a one is only too high, and is renewed when
// it surfaces.
class FlatMerge {
 public:
  explicit FlatMerge(const Ranks& ranks) : ranks_(ranks), taken_(ranks.size()) {
    for (std::size_t c = 0; c < ranks.size(); ++c) push(c);
  }
  std::size_t taken(std::size_t competitor) const { return taken_[competitor]; }
  bool has_more(std::size_t competitor) const {
    return taken_[competitor] < ranks_[competitor].size();
  }
  void take(std::size_t competitor) { ++taken_[competitor]; }
  // Takes the best remaining entry; false where there is none.
  bool take_best(std::size_t& competitor) {
    while (!queue_.empty()) {
      const Item top = queue_.top();
      queue_.pop();
      const bool current = top.index == taken_[top.competitor];
      if (current) take(top.competitor);
      push(top.competitor);
      competitor = top.competitor;
      if (current) return true;
    }
    return false;
  }

 private:
  struct Item {
    std::uint32_t rank;
    std::size_t competitor, index;
    bool operator<(const Item& o) const {  // std::priority_queue surfaces the largest
      return rank != o.rank ? rank < o.rank : competitor > o.competitor;
    }
  };
  void push(std::size_t competitor) {
    const std::size_t index = taken_[competitor];
    if (has_more(competitor)) queue_.push({ranks_[competitor][index], competitor, index});
  }
  const Ranks& ranks_;
  std::vector<std::size_t> taken_;
  std::priority_queue<Item> queue_;
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
