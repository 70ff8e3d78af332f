// How many of a segment's entries have at least a score: 33 of their scores in descending order, at
// even distances in rank. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace precis {

class ScoreCurve {
 public:
  // `scores`: of the segment's `entries` entries, or of an even sample of them. Protected entries
  // have no finite score.
  ScoreCurve(std::vector<float> scores, std::uint64_t entries);
  // The curve of all entries of these together.
  static ScoreCurve together(std::span<const ScoreCurve* const> curves);

  std::uint64_t entries() const { return entries_; }
  // The entries with at least this score, and the protected ones. Interpolated.
  std::uint64_t at_least(float score) const;

 private:
  static constexpr std::size_t kSteps = 32;
  float score_at(double share) const;
  std::uint64_t entries_ = 0;
  double protected_share_ = 1;
  std::array<float, kSteps + 1> descending_{};
};

}  // namespace precis
