// One work item of attention_columns_cpu.cc: a chunk of tokens of one KV head and all rows that
// observe them. Only for loops that isa.h compiles.
#pragma once

#include "kernels/score/attention/attention_weights.h"
#include "kernels/score/attention/row_sums.h"

namespace precis::kernels {

// The moments that pass 2 sums over one chunk.
struct ChunkMoments {
  double entropy = 0, variance = 0;
};

// Calls consume(r, weights) for every row in order: weights[t - low] over tokens [low, high), zero
// for tokens that the row does not see.
template <typename Products, typename Consume>
PRECIS_INLINE void for_rows(const HeadTask& task, std::uint32_t low, std::uint32_t high,
                            const Consume& consume) {
  constexpr std::size_t kRows = 128;
  static_assert(kRows % kBlockRows == 0);
  const std::size_t width = whole_tiles(high - low, kBlockTokens);
  AlignedArray<float> held(std::min(kRows, whole_tiles(task.num_rows, kBlockRows)) * width);
  for (std::size_t first = 0; first < task.num_rows; first += kRows) {
    const std::size_t last = std::min(first + kRows, task.num_rows);
    for_blocks<Products>(task, {first, last}, {low, high},
                         StoreWeights<Products>{task, first, low, width, held.data()});
    for (std::size_t r = first; r < last; ++r) consume(r, held.data() + (r - first) * width);
  }
}

// The tokens that pooling over [first, last) reads.
struct Halo {
  std::uint32_t low, high;
  static Halo of(const AttentionOp& op, std::uint32_t first, std::uint32_t last) {
    const std::uint32_t half = op.kernel / 2;
    return {first > half ? first - half : 0, op.columns - last > half ? last + half : op.columns};
  }
};

// out[i] = the larger of out[i] and x[i] (take_larger), or their sum (add_up). The arrays must not
// overlap.
PRECIS_INLINE void take_larger(const float* __restrict x, std::size_t count,
                               float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = x[i] > out[i] ? x[i] : out[i];
}
PRECIS_INLINE void add_up(const float* __restrict x, std::size_t count, float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] += x[i];
}

// out[t - first] = column pooled around t, for t in [first, last); column[t - halo.low]. Sums in
// the order of AttentionOp::pooled().
PRECIS_INLINE void pool_columns(const AttentionOp& op, const float* column, Halo halo,
                                std::uint32_t first, std::uint32_t last, float* out) {
  const std::uint32_t half = op.kernel / 2;
  std::fill(out, out + (last - first), 0.0f);
  for (std::uint32_t k = 0; k < op.kernel; ++k) {  // adds token t + k - half to token t
    const std::uint32_t from = std::max(first, k < half ? halo.low + (half - k) : first);
    const std::uint32_t beyond = k > half ? std::min(halo.high, k - half) : 0;
    const std::uint32_t to = std::min(last, halo.high - beyond);
    if (from >= to) continue;
    const float* x = column + (from + k - half - halo.low);
    op.pool == Pool::kMax ? take_larger(x, to - from, out + (from - first))
                          : add_up(x, to - from, out + (from - first));
  }
  if (op.pool == Pool::kMax) return;
  for (std::uint32_t t = 0; t < last - first; ++t) out[t] /= static_cast<float>(op.kernel);
}

// The pass between passes 1 and 2: adds the sums over [first, last) of row r's weights to
// masses[2 r], and of its pooled weights to masses[2 r + 1].
template <typename Products>
PRECIS_INLINE void chunk_masses(const HeadTask& task, std::uint32_t first, std::uint32_t last,
                                double* masses) {
  const Halo halo = Halo::of(task.op, first, last);
  std::vector<float> pooled(last - first);
  for_rows<Products>(task, halo.low, halo.high, [&](std::size_t r, const float* weights) {
    pool_columns(task.op, weights, halo, first, last, pooled.data());
    for (std::uint32_t t = first; t < last; ++t) {
      masses[2 * r] += weights[t - halo.low];
      masses[2 * r + 1] += pooled[t - first];
    }
  });
}

// sums[0, width) = the group's sums, [op.group, width], reduced.
PRECIS_INLINE void reduce_group(const AttentionOp& op, std::size_t width, float* sums) {
  for (std::size_t g = 1; g < op.group; ++g) {
    op.group_reduce == Reduce::kMax ? take_larger(sums + g * width, width, sums)
                                    : add_up(sums + g * width, width, sums);
  }
  for (std::size_t t = 0; t < width; ++t) {
    sums[t] = AttentionOp::finished(op.group_reduce, sums[t], op.group);
  }
}

// Writes the scores of columns [first, last) from `reduced`: [group, halo] if pooling comes after
// the rows, else the input of AttentionOp::score() over [first, last). Overwrites `reduced`.
PRECIS_INLINE void finish_columns(const HeadTask& task, Halo halo, std::uint32_t first,
                                  std::uint32_t last, float* reduced) {
  const AttentionOp& op = task.op;
  const std::size_t width = last - first, wide = halo.high - halo.low;
  float* scores = task.scores + first;
  switch (op.pool_order) {
    case PoolOrder::kRowsGroupPool:
      reduce_group(op, wide, reduced);
      return pool_columns(op, reduced, halo, first, last, scores);
    case PoolOrder::kRowsPoolGroup: {
      std::vector<float> pooled(op.group * width);
      for (std::size_t g = 0; g < op.group; ++g) {
        pool_columns(op, reduced + g * wide, halo, first, last, pooled.data() + g * width);
      }
      reduce_group(op, width, pooled.data());
      std::copy(pooled.begin(), pooled.begin() + static_cast<std::ptrdiff_t>(width), scores);
      return;
    }
    case PoolOrder::kPoolRowsGroup: reduce_group(op, width, reduced); break;
    case PoolOrder::kPoolGroupRows: break;
  }
  std::copy(reduced, reduced + width, scores);
}

// Pass 2 over columns [first, last) for recipes that need one reduced value per query head and
// column, not pooled before the rows are reduced. Weights never leave registers.
template <typename Products>
PRECIS_INLINE void chunk_sums(const HeadTask& task, std::uint32_t first, std::uint32_t last) {
  const AttentionOp& op = task.op;
  const Halo halo = Halo::of(op, first, last);
  const std::size_t wide = halo.high - halo.low, padded = whole_tiles(wide, kBlockTokens);
  AlignedArray<float> sums(op.group * padded, 0.0f);
  for (std::size_t row = 0; row < task.num_rows; row += kRowsAtOnce) {
    for_blocks<Products>(task, {row, std::min(row + kRowsAtOnce, task.num_rows)},
                         {halo.low, halo.high},
                         AddWeights<Products>{task, halo.low, padded, sums.data()});
  }
  for (std::size_t g = 0; g < op.group; ++g) {
    for (std::uint32_t t = 0; t < wide; ++t) {
      sums[g * wide + t] =
          AttentionOp::row_finished(op.row_reduce, sums[g * padded + t], op.seen_by(halo.low + t));
    }
  }
  finish_columns(task, halo, first, last, sums.data());
}

// Pass 2 over columns [first, last) for every other recipe.
template <typename Products>
PRECIS_INLINE void chunk_columns(const HeadTask& task, std::uint32_t first, std::uint32_t last,
                                 ChunkMoments* moments) {
  const AttentionOp& op = task.op;
  const Halo halo = Halo::of(op, first, last);
  const Halo kept = op.pools_rows() ? Halo{first, last} : halo;  // columns reduced over rows
  const std::size_t width = last - first, wide = kept.high - kept.low;
  const bool group_first = op.pool_order == PoolOrder::kPoolGroupRows;
  RowSums reduced(op.row_reduce, group_first ? 1 : op.group, wide);
  Moments raw(moments != nullptr ? op.group : 0, width);
  std::vector<float> mean(task.mean != nullptr ? width : 0), pooled(width), grouped(width);
  for_rows<Products>(task, halo.low, halo.high, [&](std::size_t r, const float* weights) {
    const std::size_t g = r % op.group;
    const std::uint32_t visible = op.visible(static_cast<std::uint32_t>(r / op.group));
    const float* of_chunk = weights + (first - halo.low);
    for (std::size_t t = 0; t < mean.size(); ++t) mean[t] += of_chunk[t];
    if (moments != nullptr) {
      const std::size_t seen = std::clamp(visible, first, last) - first;
      raw.add(g, of_chunk, seen);
      for (std::size_t t = 0; t < seen; ++t) moments->entropy -= entropy_term(of_chunk[t]);
    }
    const std::size_t seen = std::clamp(visible, kept.low, kept.high) - kept.low;
    if (!op.pools_rows()) return reduced.add(g, weights, seen);
    pool_columns(op, weights, halo, first, last, pooled.data());
    const float scale = task.row_scale != nullptr ? task.row_scale[r] : 1.0f;
    for (float& x : pooled) x *= scale;
    if (!group_first) return reduced.add(g, pooled.data(), seen);
    for (std::size_t t = 0; t < width; ++t) {
      grouped[t] = AttentionOp::added(op.group_reduce, g == 0 ? 0.0f : grouped[t], pooled[t]);
    }
    if (g + 1 < op.group) return;
    for (float& x : grouped) x = AttentionOp::finished(op.group_reduce, x, op.group);
    reduced.add(0, grouped.data(), seen);
  });
  std::vector<float> columns(reduced.num_heads() * wide);
  for (std::size_t g = 0; g < reduced.num_heads(); ++g) {
    for (std::uint32_t t = 0; t < wide; ++t) {
      columns[g * wide + t] = reduced.finished(g, t, op.seen_by(kept.low + t), op.gamma);
    }
  }
  finish_columns(task, halo, first, last, columns.data());
  const auto observed = static_cast<float>(task.num_rows);
  for (std::size_t t = 0; t < mean.size(); ++t) task.mean[first + t] = mean[t] / observed;
  for (std::size_t g = 0; moments != nullptr && g < op.group; ++g) {
    for (std::uint32_t t = first; t < last; ++t) {
      moments->variance += raw.variance(g, t - first, op.seen_by(t));
    }
  }
}

}  // namespace precis::kernels
