// How far a head must be ranked, shared by CPU and CUDA: integers that are the same on both.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/allocate/allocate_op.h"
#include "kernels/common/segment_shape.h"

namespace precis::kernels {

// How many ranked tokens of each head any of a layer's first `slots` turns may need, so that no
// more need be ranked.
struct RankedLimits {
  std::uint64_t ranked = 0;  // ranked tokens of a head
  std::uint64_t wanted = 0;  // ranked tokens wanted of all heads together
  // If heads compete, a head's limit is the larger of `sure` and its share of the best `wanted` of
  // all heads (shares_of_best), or, in a blend, their sum. Else the limit is `sure`.
  bool compete = false, blend = false;
  std::uint64_t sure = 0;

  static RankedLimits of(const Recipe& recipe, const SegmentShape& shape, std::uint32_t num_heads,
                         std::uint64_t slots) {
    const std::uint64_t guarded = std::uint64_t{shape.protected_count()} * num_heads;
    RankedLimits l;
    l.ranked = shape.num_tokens - shape.protected_count();
    l.wanted = slots - std::min(slots, guarded);
    l.sure = l.wanted;
    if (recipe.layers == LayerAllocator::kGlobalFlat || recipe.heads == HeadAllocator::kTable) {
      return l;
    }
    if (recipe.heads == HeadAllocator::kUniform) {
      const std::uint64_t most = (slots + num_heads - 1) / num_heads;
      l.sure = most - std::min<std::uint64_t>(most, shape.protected_count());
      return l;
    }
    // If heads compete, the entries that a head wins by score are among the best `wanted` of all
    // heads. It may also need its guarantee or, in a blend, the average and what rounding may add.
    const std::uint64_t average = (l.wanted + num_heads - 1) / num_heads;
    l.compete = true;
    l.blend = is_blend(recipe);
    l.sure = l.blend ? average + 2 * num_heads + 2
                     : guaranteed_entries(recipe, shape.protected_count(), average);
    return l;
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t limit(std::uint64_t share) const {
    std::uint64_t most = sure;
    if (compete && blend) most = share + sure;
    if (compete && !blend && share > sure) most = share;
    return most < ranked ? most : ranked;
  }
};

// Each head's sample: up to sample_of_head() tokens, evenly spaced: sampled_token(i).
inline constexpr std::uint32_t kLayerSampleSize = 4096;  // of all heads that compete
inline std::uint32_t sample_of_head(std::uint32_t num_heads) {
  return std::max(kLayerSampleSize / num_heads, 1u);
}
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t sampled_token(std::uint64_t i, std::uint64_t count,
                                                             std::uint64_t taken) {
  return i * count / taken;
}

// Whether `wanted` is so large a part of the `total` scores that a sample would not help.
inline bool wants_nearly_all(std::uint64_t wanted, std::uint64_t total) {
  return wanted >= total / 4 * 3;
}

// The index among `size` sampled scores, best first, such that probably at least `wanted` of the
// `total` scores are at or before that sample; `size` or more if there is none. `doubt` widens it:
// 1 is three standard deviations of the sample.
inline std::size_t sample_index(std::size_t size, std::uint64_t wanted, std::uint64_t total,
                                double doubt) {
  const auto count = static_cast<double>(size);
  const double share = static_cast<double>(wanted) / static_cast<double>(total);
  const double spread = 3 * std::sqrt(share * (1 - share) / count) + 1 / count;
  return static_cast<std::size_t>((share + doubt * spread) * count);
}

}  // namespace precis::kernels
