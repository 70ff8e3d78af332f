#include "cachesvc/pipeline/score_curve.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace precis {

ScoreCurve::ScoreCurve(std::vector<float> scores, std::uint64_t entries) : entries_(entries) {
  const auto all = static_cast<double>(scores.size());
  std::erase_if(scores, [](float score) { return !std::isfinite(score); });
  if (scores.empty()) return;
  std::ranges::sort(scores, std::greater());
  protected_share_ = 1 - static_cast<double>(scores.size()) / all;
  for (std::size_t i = 0; i <= kSteps; ++i) {
    const double rank = static_cast<double>(i * (scores.size() - 1)) / kSteps;
    const auto before = static_cast<std::size_t>(rank);
    const float next = scores[std::min(before + 1, scores.size() - 1)];
    descending_[i] = std::lerp(scores[before], next, static_cast<float>(rank - std::floor(rank)));
  }
}

std::uint64_t ScoreCurve::at_least(float score) const {
  double share = 0;  // of the entries that are not protected
  if (score <= descending_.back()) {
    share = 1;
  } else if (score <= descending_.front()) {
    const auto below = std::ranges::lower_bound(descending_, score, std::greater_equal());
    const float above = *(below - 1);
    share = (static_cast<double>(below - 1 - descending_.begin()) +
             (above - score) / (above - *below)) /
            kSteps;
  }
  share = protected_share_ + (1 - protected_share_) * share;
  return static_cast<std::uint64_t>(std::llround(share * static_cast<double>(entries_)));
}

}  // namespace precis
