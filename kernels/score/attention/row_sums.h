// Sums over rows of a chunk of columns: one value or two moments per query head and column. Only
// for loops that isa.h compiles.
#pragma once

#include <vector>

#include "kernels/common/host_device.h"
#include "kernels/score/attention/attention_op.h"

namespace precis::kernels {

// Sum and sum of squares. In double, because a variance is the small difference of the two.
class Moments {
 public:
  Moments(std::size_t num_heads, std::size_t width)
      : width_(width), sums_(num_heads * width), squares_(num_heads * width) {}
  // Adds the first `seen` columns of a row.
  PRECIS_INLINE void add(std::size_t head, const float* row, std::size_t seen) {
    double *sum = sums_.data() + head * width_, *square = squares_.data() + head * width_;
    for (std::size_t t = 0; t < seen; ++t) {
      const double x = row[t];
      sum[t] += x;
      square[t] += x * x;
    }
  }
  PRECIS_INLINE double mean(std::size_t head, std::size_t t, std::uint32_t count) const {
    return sums_[head * width_ + t] / count;
  }
  PRECIS_INLINE double variance(std::size_t head, std::size_t t, std::uint32_t count) const {
    return unbiased_variance(sums_[head * width_ + t], squares_[head * width_ + t], count);
  }

 private:
  std::size_t width_;
  std::vector<double> sums_, squares_;  // [num_heads, width]
};

// Columns reduced over rows.
class RowSums {
 public:
  RowSums(RowReduce reduce, std::size_t num_heads, std::size_t width)
      : reduce_(reduce),
        num_heads_(num_heads),
        width_(width),
        sums_(has_moments() ? 0 : num_heads * width),
        moments_(has_moments() ? num_heads : 0, width) {}
  std::size_t num_heads() const { return num_heads_; }
  PRECIS_INLINE void add(std::size_t head, const float* row, std::size_t seen) {
    if (has_moments()) return moments_.add(head, row, seen);
    float* sum = sums_.data() + head * width_;
    for (std::size_t t = 0; t < seen; ++t) sum[t] = AttentionOp::row_added(reduce_, sum[t], row[t]);
  }
  // `count` rows saw column t.
  PRECIS_INLINE float finished(std::size_t head, std::size_t t, std::uint32_t count,
                               double gamma) const {
    if (has_moments()) {
      return static_cast<float>(moments_.mean(head, t, count) +
                                gamma * moments_.variance(head, t, count));
    }
    return AttentionOp::row_finished(reduce_, sums_[head * width_ + t], count);
  }

 private:
  bool has_moments() const { return reduce_ == RowReduce::kMeanVariance; }
  RowReduce reduce_;
  std::size_t num_heads_, width_;
  std::vector<float> sums_;  // [num_heads, width]
  Moments moments_;
};

}  // namespace precis::kernels
