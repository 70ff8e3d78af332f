#include "cachesvc/pipeline/score_curve.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace precis {
namespace {

constexpr double kSampled = 4096;  // entries of all curves together

}  // namespace

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

// The score that this share of the entries has at least; protected entries do not count.
float ScoreCurve::score_at(double share) const {
  const double step = share * kSteps;
  const auto before = std::min(static_cast<std::size_t>(step), kSteps - 1);
  return std::lerp(descending_[before], descending_[before + 1],
                   static_cast<float>(step - static_cast<double>(before)));
}

ScoreCurve ScoreCurve::together(std::span<const ScoreCurve* const> curves) {
  std::uint64_t entries = 0;
  for (const ScoreCurve* const curve : curves) entries += curve->entries_;
  std::vector<float> sample;
  for (const ScoreCurve* const curve : curves) {
    const double share = static_cast<double>(curve->entries_) / static_cast<double>(entries);
    const auto size = static_cast<std::size_t>(std::llround(kSampled * share));
    for (std::size_t i = 0; i < size; ++i) {
      const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(size);
      const double scored = place - curve->protected_share_;
      sample.push_back(scored < 0 ? std::numeric_limits<float>::infinity()
                                  : curve->score_at(scored / (1 - curve->protected_share_)));
    }
  }
  return {std::move(sample), entries};
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
