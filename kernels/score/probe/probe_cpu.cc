// kvprobe on the CPU: one memory-bound pass over K and V.
#include <memory>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/score/keys/key_rows.h"
#include "kernels/score/probe/probe.h"
#include "kernels/score/probe/probe_op.h"
#include "kernels/score/score.h"
#include "precis/limits.h"
#include "precis/profile.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 1024;  // one work item
static_assert(kChunkTokens % Unrotation::kBlockTokens == 0);
constexpr std::size_t kWidthMax = limits::kHeadDimMax + 2 * kChannels;

// A head's probe, its channels in the order of lanes. Keys have the layout of key_sum_width().
struct HeadProbe {
  std::vector<float> anchor, key, value;
  ProbeOp op;
};

HeadProbe head_probe(std::span<const float> probe, const Unrotation& turns, std::uint32_t head_dim,
                     Dtype dtype) {
  const ProbeRows rows{head_dim};
  const std::size_t pairs = turns.pairs(), width = turns.width();
  const auto of_keys = [&](std::uint32_t first) {
    std::vector<float> lanes(key_sum_width(turns, head_dim));
    for (std::size_t c = 0; c < pairs; ++c) {
      lanes[lane_of(dtype, c)] = probe[first + c];
      lanes[width + lane_of(dtype, c)] = probe[first + pairs + c];
    }
    for (std::size_t c = 2 * pairs; c < head_dim; ++c) {
      lanes[2 * width + lane_of(dtype, c - 2 * pairs)] = probe[first + c];
    }
    return lanes;
  };
  HeadProbe head{of_keys(rows.anchor()), of_keys(rows.key()), {}, {}};
  head.value.resize(whole_channels(head_dim));
  for (std::size_t c = 0; c < head_dim; ++c) {
    head.value[lane_of(dtype, c)] = probe[rows.value() + c];
  }
  head.op = {probe[rows.log_key()],        probe[rows.log_value()], probe[rows.difference()],
             probe[rows.log_difference()], probe[rows.distance()],  probe[rows.constant()]};
  return head;
}

// The sums of probe_op.h, spread over lanes.
struct SpreadSums {
  Lanes along = {}, key = {}, key_norm = {}, value = {}, value_norm = {};
};

PRECIS_INLINE void add_to_key(const Channels& x, const float* anchor, const float* coefficients,
                              SpreadSums& sums) {
  sums.along += x.a * load_lanes(anchor) + x.b * load_lanes(anchor + kLanes);
  sums.key += x.a * load_lanes(coefficients) + x.b * load_lanes(coefficients + kLanes);
  sums.key_norm += x.a * x.a + x.b * x.b;
}

// `anchor`, `coefficients`: of the pairs, for the row's block (turn_anchor()); `still`,
// `still_coefficients`: of the channels that RoPE does not rotate.
struct KeyLanes {
  const float *anchor, *coefficients, *still, *still_coefficients;
};

template <Dtype dtype>
PRECIS_INLINE void add_key(const KeyRows& keys, std::size_t r, const KeyLanes& lanes,
                           SpreadSums& sums) {
  constexpr std::size_t kSize = dtype_size_bytes(dtype);
  const std::size_t pairs = keys.pairs, width = whole_channels(pairs);
  const std::byte* row = keys.rows.row(r);
  const float* step = keys.turns.step(keys.first + r);
  for (std::size_t c = 0; c < pairs; c += kChannels) {
    const std::byte* at = row + c * kSize;
    Channels x = widen_channels<dtype>(at, pairs - c);
    Channels y = widen_channels<dtype>(at + pairs * kSize, pairs - c);
    turn_back(x, y, step + c, width);
    add_to_key(x, lanes.anchor + c, lanes.coefficients + c, sums);
    add_to_key(y, lanes.anchor + width + c, lanes.coefficients + width + c, sums);
  }
  const std::size_t still = keys.rows.dim - 2 * pairs;
  for (std::size_t c = 0; c < still; c += kChannels) {
    const Channels x = widen_channels<dtype>(row + (2 * pairs + c) * kSize, still - c);
    add_to_key(x, lanes.still + c, lanes.still_coefficients + c, sums);
  }
}

template <Dtype dtype>
PRECIS_INLINE void add_value(const std::byte* row, std::size_t dim, const float* coefficients,
                             SpreadSums& sums) {
  for (std::size_t c = 0; c < dim; c += kChannels) {
    const Channels x = widen_channels<dtype>(row + c * dtype_size_bytes(dtype), dim - c);
    sums.value += x.a * load_lanes(coefficients + c) + x.b * load_lanes(coefficients + c + kLanes);
    sums.value_norm += x.a * x.a + x.b * x.b;
  }
}

// Sixteen rows' sums, each spread over lanes.
struct BlockSums {
  float along[kRowsInBlock][kLanes], key[kRowsInBlock][kLanes], key_norm[kRowsInBlock][kLanes],
      value[kRowsInBlock][kLanes], value_norm[kRowsInBlock][kLanes];
  PRECIS_INLINE void set(std::size_t r, const SpreadSums& sums) {
    store_lanes(along[r], sums.along);
    store_lanes(key[r], sums.key);
    store_lanes(key_norm[r], sums.key_norm);
    store_lanes(value[r], sums.value);
    store_lanes(value_norm[r], sums.value_norm);
  }
};

PRECIS_INLINE void score_block(const BlockSums& sums, const ProbeOp& op, const float* distances,
                               std::size_t count, float* scores) {
  float along[kRowsInBlock], key[kRowsInBlock], key_norm[kRowsInBlock], value[kRowsInBlock],
      value_norm[kRowsInBlock];
  sum_each(sums.along, along);
  sum_each(sums.key, key);
  sum_each(sums.key_norm, key_norm);
  sum_each(sums.value, value);
  sum_each(sums.value_norm, value_norm);
  for (std::size_t r = 0; r < count; ++r) {
    scores[r] =
        probe_score(op, {along[r], key[r], key_norm[r], value[r], value_norm[r]}, distances[r]);
  }
}

template <Dtype dtype>
struct ProbeRowsPass {
  RowSpan values;
  const HeadProbe& probe;
  const float* distances;  // log_distance() of each row
  float* scores;
  PRECIS_INLINE void operator()(const KeyRows& keys) const {
    const std::size_t width = whole_channels(keys.pairs);
    const float *anchor = probe.anchor.data(), *key = probe.key.data();
    float turned_anchor[kWidthMax], turned_key[kWidthMax];
    const KeyLanes lanes{turned_anchor, turned_key, anchor + 2 * width, key + 2 * width};
    BlockSums sums{};
    for (std::size_t first = 0; first < keys.rows.count; first += kRowsInBlock) {
      if (keys.pairs > 0 && first % Unrotation::kBlockTokens == 0) {
        const float* turn = keys.turns.block(keys.first + first);
        turn_anchor(keys.turns, turn, anchor, turned_anchor);
        turn_anchor(keys.turns, turn, key, turned_key);
      }
      const std::size_t count = keys.rows.block_count(first);
      for (std::size_t r = 0; r < count; ++r) {
        keys.rows.prefetch_behind(first + r);
        values.prefetch_behind(first + r);
        SpreadSums row;
        add_key<dtype>(keys, first + r, lanes, row);
        add_value<dtype>(values.row(first + r), keys.rows.dim, probe.value.data(), row);
        sums.set(r, row);
      }
      score_block(sums, probe.op, distances + first, count, scores + first);
    }
  }
};

PRECIS_INLINE void probe_loop(const KeyRows& keys, const RowSpan& values, const HeadProbe& probe,
                              const float* distances, float* scores) {
  switch (keys.rows.dtype) {
    case Dtype::kBf16:
      return run_pass<Dtype::kBf16>(keys,
                                    ProbeRowsPass<Dtype::kBf16>{values, probe, distances, scores});
    case Dtype::kF16:
      return run_pass<Dtype::kF16>(keys,
                                   ProbeRowsPass<Dtype::kF16>{values, probe, distances, scores});
    case Dtype::kF32:
      return run_pass<Dtype::kF32>(keys,
                                   ProbeRowsPass<Dtype::kF32>{values, probe, distances, scores});
    case Dtype::kF8E4M3:
      return run_pass<Dtype::kF8E4M3>(
          keys, ProbeRowsPass<Dtype::kF8E4M3>{values, probe, distances, scores});
  }
}

}  // namespace

void score_kvprobe_cpu(const CpuContext& context, const LayerInput& input,
                       std::span<float> scores) {
  const std::uint32_t n = input.num_tokens(), dim = input.keys.head_dim;
  const Dtype dtype = input.keys.dtype;
  const Unrotation turns(input.rope_frequencies, n, dtype);
  const std::vector<float> probe = turned_probe(input);
  const std::size_t width = ProbeRows{dim}.count();
  std::vector<HeadProbe> heads;
  for (std::size_t h = 0; h < input.num_kv_heads(); ++h) {
    heads.push_back(head_probe(std::span(probe).subspan(h * width, width), turns, dim, dtype));
  }
  std::vector<float> distances(n);  // once for all heads, because logarithms take long
  for (std::uint32_t t = 0; t < n; ++t) distances[t] = log_distance(n - 1 - t);
  const std::size_t chunks = (n + kChunkTokens - 1) / kChunkTokens;
  const auto body = for_isa<&probe_loop>(context.isa);
  context.pool.parallel_for(heads.size() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    const std::size_t count = std::min(kChunkTokens, n - first);
    const auto rows = [&](const HeadsView& view) {
      return RowSpan{view.row(head, first), count, dim, dtype};
    };
    body({rows(input.keys), first, turns, turns.pairs()}, rows(input.values), heads[head],
         &distances[first], &scores[std::size_t{head} * n + first]);
  });
}

}  // namespace precis::kernels
