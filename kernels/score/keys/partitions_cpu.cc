// LagKV and LocalKV on the CPU (policies/scores.md, "LagKV and LocalKV"). A partition's tokens are
// normalised by channel ranges, of the next partition (LagKV) or of the partition itself (LocalKV);
// the scores are a softmax of each token's spread over channels.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/segment_shape.h"
#include "kernels/score/keys/partitions_op.h"
#include "kernels/score/row_blocks.h"
#include "kernels/score/score.h"
#include "kernels/select/select_op.h"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

// Tokens of one work item: about a quarter of a head, within these bounds. Not fewer, because each
// item must first find the ranges of a partition that belongs to another item.
constexpr std::size_t kRunTokensMin = 1024, kRunTokensMax = 8192;

// Maps the bits of an element so that integer comparison orders them as values. The map is its own
// inverse.
PRECIS_INLINE std::int8_t ordered(std::int8_t bits) {
  return static_cast<std::int8_t>(bits ^ ((bits >> 7) & 0x7f));
}
PRECIS_INLINE std::int16_t ordered(std::int16_t bits) {
  return static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7fff));
}
PRECIS_INLINE std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// The normalisation of a partition, in the order of Channels; undefined past the last channel.
struct ChannelRanges {
  float low[limits::kHeadDimMax], stretch[limits::kHeadDimMax];
};

// The lowest and highest value of each channel so far, by integer arithmetic alone: small elements
// use more lanes and need not be widened.
template <Dtype dtype>
class Extremes {
 public:
  static constexpr std::size_t kRowsAtOnce = 4;
  PRECIS_INLINE explicit Extremes(std::size_t dim) {
    std::fill_n(low_, dim, std::numeric_limits<Bits>::max());
    std::fill_n(high_, dim, std::numeric_limits<Bits>::min());
  }
  // Adds rows [first, first + kRowsAtOnce), as far as they exist.
  PRECIS_INLINE void add(const RowSpan& rows, std::size_t first) {
    if (first >= rows.count) return;
    const Bits* x[kRowsAtOnce];  // repeats the last row past the end
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      x[r] = reinterpret_cast<const Bits*>(rows.row(std::min(first + r, rows.count - 1)));
    }
    for (std::size_t c = 0; c < rows.dim; ++c) {
      const Bits x0 = ordered(x[0][c]), x1 = ordered(x[1][c]), x2 = ordered(x[2][c]),
                 x3 = ordered(x[3][c]);
      const Bits low01 = std::min(x0, x1), low23 = std::min(x2, x3);
      const Bits high01 = std::max(x0, x1), high23 = std::max(x2, x3);
      low_[c] = std::min(low_[c], std::min(low01, low23));
      high_[c] = std::max(high_[c], std::max(high01, high23));
    }
  }
  // The ranges of the added rows. Must be the last call.
  PRECIS_INLINE void to_ranges(std::size_t dim, ChannelRanges& ranges) {
    for (std::size_t c = 0; c < dim; ++c) {
      low_[c] = ordered(low_[c]);
      high_[c] = ordered(high_[c]);
    }
    for (std::size_t c = 0; c < dim; c += kChannels) {
      const Channels low =
          widen_channels<dtype>(reinterpret_cast<const std::byte*>(low_ + c), dim - c);
      const Channels high =
          widen_channels<dtype>(reinterpret_cast<const std::byte*>(high_ + c), dim - c);
      Channels stretch;
      for (std::size_t i = 0; i < kLanes; ++i) {
        stretch.a[i] = lag_stretch(low.a[i], high.a[i]);
        stretch.b[i] = lag_stretch(low.b[i], high.b[i]);
      }
      store_channels(ranges.low + c, low);
      store_channels(ranges.stretch + c, stretch);
    }
  }

 private:
  using Bits = std::make_signed_t<BitsOf<dtype>>;
  alignas(64) Bits low_[limits::kHeadDimMax], high_[limits::kHeadDimMax];
};

template <Dtype dtype>
struct FindRanges {
  ChannelRanges& ranges;
  PRECIS_INLINE void operator()(const RowSpan& rows) const {
    Extremes<dtype> extremes(rows.dim);
    for (std::size_t r = 0; r < rows.count; ++r) {
      rows.prefetch_behind(r);
      if (r % extremes.kRowsAtOnce == 0) extremes.add(rows, r);
    }
    extremes.to_ranges(rows.dim, ranges);
  }
};

// For one normalised row: sum and sum of squares of its channels' distances to its first channel,
// spread over lanes. With one of the values as origin, the squares stay within `dim` times the
// variance, for which f32 is precise enough.
template <Dtype dtype>
PRECIS_INLINE void add_distances(const std::byte* row, std::size_t dim, const ChannelRanges& ranges,
                                 float* sum, float* squares) {
  const float origin = (first_element<dtype>(row) - ranges.low[0]) * ranges.stretch[0];
  Lanes sum_a = {}, sum_b = {}, squares_a = {}, squares_b = {};
  std::size_t c = 0;
  for (; c + kChannels <= dim; c += kChannels) {
    const Channels x = widen_channels<dtype>(row + c * dtype_size_bytes(dtype));
    const Channels low = load_channels(ranges.low + c), by = load_channels(ranges.stretch + c);
    const Lanes a = (x.a - low.a) * by.a - origin, b = (x.b - low.b) * by.b - origin;
    sum_a += a;
    sum_b += b;
    squares_a += a * a;
    squares_b += b * b;
  }
  store_lanes(sum, sum_a + sum_b);
  store_lanes(squares, squares_a + squares_b);
  for (; c < dim; ++c) {
    const std::size_t lane = lane_of(dtype, c);
    const float x = first_element<dtype>(row + c * dtype_size_bytes(dtype));
    const float distance = (x - ranges.low[lane]) * ranges.stretch[lane] - origin;
    sum[c % kLanes] += distance;
    squares[c % kLanes] += distance * distance;
  }
}

// spreads[whole blocks of rows] = each row's unbiased standard deviation over its channels,
// normalised by `ranges`; 0 for a single channel; undefined past the last row. If `chained`,
// `ranges` are then set to those of these rows: if each partition is normalised by the next
// partition, a walk from the last partition to the first reads each row once.
template <Dtype dtype, bool chained>
struct FindSpreads {
  ChannelRanges& ranges;
  float* spreads;
  PRECIS_INLINE void operator()(const RowSpan& rows) const {
    Extremes<dtype> extremes(rows.dim);
    const auto dim = static_cast<float>(rows.dim);
    const float unbiased = rows.dim > 1 ? 1.0f / (dim - 1) : 0.0f;
    float sum[kRowsInBlock][kLanes] = {}, squares[kRowsInBlock][kLanes] = {};
    float sums[kRowsInBlock], squares_sums[kRowsInBlock];
    for (std::size_t b = (rows.count + kRowsInBlock - 1) / kRowsInBlock; b-- > 0;) {
      const std::size_t first = b * kRowsInBlock;
      for (std::size_t r = 0; r < rows.block_count(first); ++r) {
        rows.prefetch_before(first + r);
        if (chained && r % extremes.kRowsAtOnce == 0) extremes.add(rows, first + r);
        add_distances<dtype>(rows.row(first + r), rows.dim, ranges, sum[r], squares[r]);
      }
      sum_each(sum, sums);
      sum_each(squares, squares_sums);
      for (std::size_t r = 0; r < kRowsInBlock; ++r) {
        const float variance = (squares_sums[r] - sums[r] * (sums[r] / dim)) * unbiased;
        spreads[first + r] = std::sqrt(variance > 0 ? variance : 0.0f);
      }
    }
    if (chained) extremes.to_ranges(rows.dim, ranges);
  }
};

// Adds to scores[count] the softmax of the rows' spreads in `ranges`; if `chained`, `ranges` then
// become the rows' own.
template <Dtype dtype, bool chained>
PRECIS_INLINE void add_partition(const RowSpan& rows, ChannelRanges& ranges, float* spreads,
                                 float* scores) {
  with_dim<dtype>(rows, FindSpreads<dtype, chained>{ranges, spreads});
  float largest[kLanes] = {};
  for (std::size_t t = rows.count; t % kLanes != 0; ++t) spreads[t] = 0;
  for (std::size_t t = 0; t < rows.count; t += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      largest[i] = spreads[t + i] > largest[i] ? spreads[t + i] : largest[i];
    }
  }
  const float most = *std::max_element(largest, largest + kLanes);
  for (std::size_t t = 0; t < rows.count; ++t) spreads[t] = exp_f32(spreads[t] - most);
  const float total = sum(spreads, rows.count);
  for (std::size_t t = 0; t < rows.count; ++t) scores[t] += spreads[t] / total;
}

// Adds the scores of `parts` partitions to scores[parts, rows.count]; `rows` is the first
// partition. If `chained`, a partition is normalised by its successor's ranges, else by its own.
template <Dtype dtype, bool chained>
PRECIS_INLINE void add_partitions(RowSpan rows, std::size_t parts, float* spreads, float* scores) {
  const std::byte* const first = rows.data;
  const std::size_t ahead = chained ? rows.count : 0;
  ChannelRanges ranges;
  for (std::size_t p = parts; p-- > 0;) {
    const std::size_t token = p * rows.count;
    rows.data = first + (token + ahead) * rows.row_bytes();
    if (!chained || p + 1 == parts) with_dim<dtype>(rows, FindRanges<dtype>{ranges});
    rows.data = first + token * rows.row_bytes();
    add_partition<dtype, chained>(rows, ranges, spreads, scores + token);
  }
}

template <bool chained>
PRECIS_INLINE void partitions_loop(const RowSpan& rows, std::size_t parts, float* spreads,
                                   float* scores) {
  switch (rows.dtype) {
    case Dtype::kBf16: return add_partitions<Dtype::kBf16, chained>(rows, parts, spreads, scores);
    case Dtype::kF16: return add_partitions<Dtype::kF16, chained>(rows, parts, spreads, scores);
    case Dtype::kF32: return add_partitions<Dtype::kF32, chained>(rows, parts, spreads, scores);
    case Dtype::kF8E4M3:
      return add_partitions<Dtype::kF8E4M3, chained>(rows, parts, spreads, scores);
  }
}

// kvpress 0.5.5 without cross_scoring: a token's rank within its partition, ascending, over lag.
void to_kvpress_ranks(float* scores, std::uint32_t lag) {
  std::vector<std::uint32_t> ascending(lag);
  std::iota(ascending.begin(), ascending.end(), 0u);
  std::stable_sort(ascending.begin(), ascending.end(), [&](std::uint32_t a, std::uint32_t b) {
    return score_rank(scores[a]) < score_rank(scores[b]);
  });
  for (std::uint32_t rank = 0; rank < lag; ++rank) {
    scores[ascending[rank]] = static_cast<float>(rank) / static_cast<float>(lag);
  }
}

}  // namespace

void score_partitions_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                          std::span<float> scores) {
  std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::infinity());
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, input.num_tokens());
  if (!shape.has_scored_partitions()) return;
  const std::size_t scored = shape.num_partitions() - 1;
  const std::size_t run_tokens =
      std::clamp<std::size_t>(input.num_tokens() / 4, kRunTokensMin, kRunTokensMax);
  const std::size_t run = std::max<std::size_t>(run_tokens / shape.lag, 1);  // partitions
  const std::size_t runs = (scored + run - 1) / run;
  const auto body = recipe.scorer == Scorer::kLagkv ? for_isa<&partitions_loop<true>>(context.isa)
                                                    : for_isa<&partitions_loop<false>>(context.isa);
  context.pool.parallel_for(input.num_kv_heads() * runs, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / runs);
    const std::size_t begin = i % runs * run;
    const std::size_t parts = std::min(run, scored - begin);
    const auto first = static_cast<std::uint32_t>(shape.sinks + begin * shape.lag);
    std::vector<float> spreads((shape.lag + kLanes - 1) / kLanes * kLanes);
    float* out = &scores[std::size_t{head} * input.num_tokens() + first];
    std::fill(out, out + parts * shape.lag, 0.0f);
    for (const HeadsView* view : {&input.keys, &input.values}) {
      const RowSpan rows{view->row(head, first), shape.lag, view->head_dim, view->dtype};
      body(rows, parts, spreads.data(), out);
    }
    if (!recipe.lag_kvpress_ranks) return;
    for (std::size_t p = 0; p < parts; ++p) to_kvpress_ranks(out + p * shape.lag, shape.lag);
  });
}

}  // namespace precis::kernels
