#include "kernels/allocate/table_turns.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "kernels/allocate/turns.h"

namespace precis::kernels {
namespace {

// The number of entries that a head keeps as a function of the kept percentage: points at 0%, 1%,
// ... 100%, linear in between. Counts are integers, in thousandths of an entry, so that the result
// does not depend on a platform's rounding.
class Curve {
 public:
  Curve(const Profile& profile, std::uint32_t layer, std::uint32_t head, std::uint32_t num_tokens) {
    kept_.push_back(0);
    for (std::uint32_t percent = 1; percent < 100; ++percent) {
      const double pruned = profile.at(Profile::kCurveRows - percent, layer, head);
      const auto kept = static_cast<std::int64_t>(std::llround((1 - pruned) * num_tokens * 1000));
      kept_.push_back(std::max(kept_.back(), kept));
    }
    kept_.push_back(std::max(kept_.back(), std::int64_t{num_tokens} * 1000));
  }

  // The percentage at which the count reaches k. Call with ascending k.
  double reaches(std::uint32_t k) {
    const std::int64_t wanted = std::int64_t{k} * 1000;
    while (kept_[at_ + 1] < wanted) ++at_;
    const std::int64_t step = kept_[at_ + 1] - kept_[at_];
    const std::int64_t missing = std::max<std::int64_t>(wanted - kept_[at_], 0);
    return static_cast<double>(at_) +
           (step > 0 ? static_cast<double>(missing) / static_cast<double>(step) : 0.0);
  }

 private:
  std::vector<std::int64_t> kept_;
  std::size_t at_ = 0;
};

std::vector<std::uint32_t> curve_turns(const Profile& profile, const SegmentDims& dims,
                                       std::span<const std::uint32_t> guarded,
                                       std::uint64_t seats) {
  struct Next {
    double percent;
    std::uint32_t competitor, k;
    bool operator<(const Next& o) const {  // std::priority_queue puts the largest on top
      return percent != o.percent ? percent > o.percent : competitor > o.competitor;
    }
  };
  std::vector<Curve> curves;
  std::priority_queue<Next> queue;
  for (std::uint32_t c = 0; c < profile.num_layers * profile.num_kv_heads; ++c) {
    const std::uint32_t layer = c / profile.num_kv_heads;
    curves.emplace_back(profile, layer, c % profile.num_kv_heads, dims.num_tokens);
    const std::uint32_t first = guarded[layer] + 1;
    if (first <= dims.tokens(layer)) queue.push({curves[c].reaches(first), c, first});
  }
  std::vector<std::uint32_t> takers;
  while (takers.size() < seats && !queue.empty()) {
    const Next next = queue.top();
    queue.pop();
    takers.push_back(next.competitor);
    if (next.k == dims.tokens(next.competitor / profile.num_kv_heads)) continue;
    queue.push({curves[next.competitor].reaches(next.k + 1), next.competitor, next.k + 1});
  }
  return takers;
}

}  // namespace

std::vector<std::uint32_t> table_turns(const Profile& profile, const SegmentDims& dims,
                                       std::span<const std::uint32_t> guarded,
                                       std::uint64_t seats) {
  if (profile.kind == Profile::Kind::kCurves) return curve_turns(profile, dims, guarded, seats);
  std::vector<std::uint64_t> caps;
  for (std::uint32_t l = 0; l < profile.num_layers; ++l) {
    caps.insert(caps.end(), profile.num_kv_heads, dims.tokens(l) - guarded[l]);
  }
  return highest_averages(profile.table, caps, seats);
}

}  // namespace precis::kernels
