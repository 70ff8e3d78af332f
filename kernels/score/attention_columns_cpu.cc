// Two passes over K in chunks of tokens, so that scratch is small whatever the window and the
// length (policies.md A1). Pass 1 finds each row's log-sum-exp (skipped where it was pushed), pass
// 2 recomputes the logits and reduces the weights of each column over the rows. Pooled rows that
// keep their mass take a pass between them, to know it.
#include <cmath>
#include <limits>

#include "kernels/common/isa.h"
#include "kernels/score/attention_columns.h"
#include "kernels/score/row_sums.h"
#include "kernels/score/tile.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 512;  // one work item
constexpr std::size_t kBlockRows = 32;       // rows whose weights over a chunk are held at once
static_assert(kBlockRows % kTileRows == 0);
constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// One KV head: its keys and the rows that observe it, row r being query r / group of query head
// r % group of the group, rounded up to whole tiles with zero rows, scaled by 1/sqrt(head_dim).
struct HeadTask {
  AttentionOp op;
  const std::byte* keys;
  Dtype dtype;
  std::size_t head_dim, num_rows;
  const float* queries;
  const float* lse;        // [num_rows]; read by pass 2
  const float* row_scale;  // [num_rows], or null: 1
  float* reduced;          // as AttentionOp::score() reads it; written by pass 2
  float* mean;             // [columns] or null
};

// Streaming softmax of one row: the largest logit so far and the sum of exp(logit - largest).
struct RowStats {
  float largest = kNegativeInfinity;
  float sum = 0;
};

// What pass 2 sums up over one chunk.
struct ChunkMoments {
  double entropy = 0, variance = 0;
};

// Folds a tile's first `visible` logits into the row's softmax; the rest are overwritten.
PRECIS_INLINE void fold_row(float* logits, std::size_t visible, RowStats& stats) {
  for (std::size_t t = visible; t < kTileTokens; ++t) logits[t] = kNegativeInfinity;
  float lane_max[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    lane_max[i] = logits[i] > logits[i + kLanes] ? logits[i] : logits[i + kLanes];
  }
  float largest = stats.largest;
  for (std::size_t i = 0; i < kLanes; ++i) largest = lane_max[i] > largest ? lane_max[i] : largest;
  float lane_sum[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    lane_sum[i] = exp_f32(logits[i] - largest) + exp_f32(logits[i + kLanes] - largest);
  }
  stats.sum = stats.sum * exp_f32(stats.largest - largest) + sum_lanes(load_lanes(lane_sum));
  stats.largest = largest;
}

// Pass 1 over tokens [first, last): stats[num_rows] of this chunk alone.
PRECIS_INLINE void chunk_stats(const HeadTask& task, std::uint32_t first, std::uint32_t last,
                               RowStats* stats) {
  const std::size_t dim = task.head_dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  std::vector<float> scratch(dim), keys(dim * kTileTokens);
  float logits[kTileRows][kTileTokens];
  for (std::uint32_t tile = first; tile < last; tile += kTileTokens) {
    const std::size_t count = std::min<std::size_t>(kTileTokens, last - tile);
    load_tile(task.dtype, task.keys + tile * row_bytes, count, dim, scratch.data(), keys.data());
    for (std::size_t r0 = 0; r0 < task.num_rows; r0 += kTileRows) {
      tile_products(task.queries + r0 * dim, keys.data(), dim, logits);
      for (std::size_t r = r0; r < std::min(r0 + kTileRows, task.num_rows); ++r) {
        const std::uint32_t visible =
            task.op.visible(static_cast<std::uint32_t>(r / task.op.group));
        if (visible <= tile) continue;
        fold_row(logits[r - r0], std::min<std::size_t>(count, visible - tile), stats[r]);
      }
    }
  }
}

// consume(r, weights) for every row in order, weights[t - low] over tokens [low, high); zero for
// tokens that the row does not see.
template <typename Consume>
PRECIS_INLINE void for_rows(const HeadTask& task, std::uint32_t low, std::uint32_t high,
                            const Consume& consume) {
  const std::size_t dim = task.head_dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  const std::size_t width = whole_tiles(high - low, kTileTokens);
  std::vector<float> scratch(dim), keys(width * dim), weights(kBlockRows * width);
  for (std::size_t t = 0; t < width; t += kTileTokens) {
    load_tile(task.dtype, task.keys + (low + t) * row_bytes,
              std::min<std::size_t>(kTileTokens, high - low - t), dim, scratch.data(),
              keys.data() + t * dim);
  }
  float logits[kTileRows][kTileTokens];
  for (std::size_t block = 0; block < task.num_rows; block += kBlockRows) {
    const std::size_t end = std::min(block + kBlockRows, task.num_rows);
    for (std::size_t t = 0; t < width; t += kTileTokens) {
      for (std::size_t r0 = block; r0 < end; r0 += kTileRows) {
        tile_products(task.queries + r0 * dim, keys.data() + t * dim, dim, logits);
        for (std::size_t r = r0; r < std::min(r0 + kTileRows, end); ++r) {
          const float lse = task.lse[r];
          float* out = weights.data() + (r - block) * width + t;
          for (std::size_t i = 0; i < kTileTokens; ++i) {
            out[i] = AttentionOp::weight(logits[r - r0][i], lse);
          }
        }
      }
    }
    for (std::size_t r = block; r < end; ++r) {
      float* row = weights.data() + (r - block) * width;
      const std::uint32_t visible = task.op.visible(static_cast<std::uint32_t>(r / task.op.group));
      for (std::uint32_t t = std::clamp(visible, low, high); t < high; ++t) row[t - low] = 0;
      consume(r, row);
    }
  }
}

// The tokens that pooling rows over [first, last) reads.
struct Halo {
  std::uint32_t low, high;
  static Halo of(const AttentionOp& op, std::uint32_t first, std::uint32_t last) {
    const std::uint32_t half = op.pools_rows() ? op.kernel / 2 : 0;
    return {first > half ? first - half : 0, op.columns - last > half ? last + half : op.columns};
  }
};

// The pass between: masses[2 r] and [2 r + 1], the sums over [first, last) of row r's weights and
// of its pooled weights.
PRECIS_INLINE void chunk_masses(const HeadTask& task, std::uint32_t first, std::uint32_t last,
                                double* masses) {
  const Halo halo = Halo::of(task.op, first, last);
  for_rows(task, halo.low, halo.high, [&](std::size_t r, const float* weights) {
    const auto weight = [&](std::uint32_t t) { return weights[t - halo.low]; };
    for (std::uint32_t t = first; t < last; ++t) {
      masses[2 * r] += weight(t);
      masses[2 * r + 1] += task.op.pooled(weight, t);
    }
  });
}

// Pass 2 over columns [first, last).
PRECIS_INLINE void chunk_columns(const HeadTask& task, std::uint32_t first, std::uint32_t last,
                                 ChunkMoments* moments) {
  const AttentionOp& op = task.op;
  const Halo halo = Halo::of(op, first, last);
  const std::size_t width = last - first;
  const bool group_first = op.pool_order == PoolOrder::kPoolGroupRows;
  RowSums reduced(op.row_reduce, group_first ? 1 : op.group, width);
  Moments raw(moments != nullptr ? op.group : 0, width);
  std::vector<float> mean(task.mean != nullptr ? width : 0), pooled(width), grouped(width);
  for_rows(task, halo.low, halo.high, [&](std::size_t r, const float* weights) {
    const std::size_t g = r % op.group;
    const std::uint32_t visible = op.visible(static_cast<std::uint32_t>(r / op.group));
    const std::size_t seen = std::clamp(visible, first, last) - first;
    const float* row = weights + (first - halo.low);
    for (std::size_t t = 0; t < mean.size(); ++t) mean[t] += row[t];
    if (moments != nullptr) {
      raw.add(g, row, seen);
      for (std::size_t t = 0; t < seen; ++t) moments->entropy -= entropy_term(row[t]);
    }
    if (op.pools_rows()) {
      const float scale = task.row_scale != nullptr ? task.row_scale[r] : 1.0f;
      const auto weight = [&](std::uint32_t t) { return weights[t - halo.low]; };
      for (std::uint32_t t = first; t < last; ++t) pooled[t - first] = op.pooled(weight, t) * scale;
      row = pooled.data();
    }
    if (!group_first) return reduced.add(g, row, seen);
    for (std::size_t t = 0; t < width; ++t) {
      grouped[t] = AttentionOp::added(op.group_reduce, g == 0 ? 0.0f : grouped[t], row[t]);
    }
    if (g + 1 < op.group) return;
    for (float& x : grouped) x = AttentionOp::finished(op.group_reduce, x, op.group);
    reduced.add(0, grouped.data(), seen);
  });
  for (std::size_t g = 0; g < reduced.num_heads(); ++g) {
    for (std::uint32_t t = first; t < last; ++t) {
      task.reduced[g * op.columns + t] = reduced.finished(g, t - first, op.seen_by(t), op.gamma);
    }
  }
  const auto observed = static_cast<float>(task.num_rows);
  for (std::size_t t = 0; t < mean.size(); ++t) task.mean[first + t] = mean[t] / observed;
  for (std::size_t g = 0; moments != nullptr && g < op.group; ++g) {
    for (std::uint32_t t = first; t < last; ++t) {
      moments->variance += raw.variance(g, t - first, op.seen_by(t));
    }
  }
}

// The rows observing KV head `head`, in f32, scaled, padded to whole tiles.
std::vector<float> observing_rows(const LayerInput& input, const AttentionOp& op,
                                  std::uint32_t head) {
  const std::size_t dim = input.keys.head_dim;
  const std::size_t rows = std::size_t{op.group} * op.rows;
  std::vector<float> out(whole_tiles(rows, kTileRows) * dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const std::uint32_t skipped = input.queries.num_tokens - op.rows;
  std::vector<float> scratch(dim);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto q_head = static_cast<std::uint32_t>(head * op.group + r % op.group);
    const auto token = static_cast<std::uint32_t>(skipped + r / op.group);
    const float* q =
        widen(input.queries.dtype, input.queries.row(q_head, token), dim, scratch.data());
    for (std::size_t c = 0; c < dim; ++c) out[r * dim + c] = q[c] * scale;
  }
  return out;
}

float merged_lse(const RowStats* chunks, std::size_t num_chunks, std::size_t stride) {
  RowStats all;
  for (std::size_t i = 0; i < num_chunks; ++i) {
    const RowStats& chunk = chunks[i * stride];
    if (chunk.sum == 0) continue;  // nothing of this chunk is visible to the row
    const float largest = std::max(all.largest, chunk.largest);
    all.sum =
        all.sum * exp_f32(all.largest - largest) + chunk.sum * exp_f32(chunk.largest - largest);
    all.largest = largest;
  }
  return all.largest + std::log(all.sum);
}

// Everything of one call, over all KV heads.
class Passes {
 public:
  Passes(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
         const AttentionWants& wants)
      : context_(context), input_(input), wants_(wants), num_heads_(input.num_kv_heads()) {
    const AttentionOp op = result_.op =
        AttentionOp::of(recipe, input.num_tokens(), input.queries.num_tokens, input.group());
    rows_ = std::size_t{op.group} * op.rows;
    lse_.resize(num_heads_ * rows_);
    const std::size_t reduced = op.pool_order == PoolOrder::kPoolGroupRows
                                    ? op.columns
                                    : std::size_t{op.group} * op.columns;
    reduced_.resize(num_heads_ * reduced);
    result_.scores.resize(std::size_t{num_heads_} * op.columns);
    if (wants.mean) result_.mean.resize(result_.scores.size());
    for (std::uint32_t h = 0; h < num_heads_; ++h) {
      queries_.push_back(observing_rows(input, op, h));
      float* mean = wants.mean ? result_.mean.data() + std::size_t{h} * op.columns : nullptr;
      tasks_.push_back({op, input.keys.head(h), input.keys.dtype, input.keys.head_dim, rows_,
                        queries_[h].data(), lse_.data() + h * rows_, nullptr,
                        reduced_.data() + h * reduced, mean});
    }
  }

  AttentionColumns run() {
    input_.lse.empty() ? find_lse() : copy_lse();
    if (wants_.row_mass && result_.op.pools_rows()) find_scales();
    reduce_columns();
    const AttentionOp& op = result_.op;
    for_chunks(op.columns,
               [&](std::size_t, std::size_t head, std::uint32_t first, std::uint32_t last) {
                 float* scores = result_.scores.data() + head * op.columns;
                 for (std::uint32_t t = first; t < last; ++t) {
                   scores[t] = op.score(tasks_[head].reduced, t);
                 }
               });
    return std::move(result_);
  }

 private:
  static std::size_t num_chunks(std::uint32_t tokens) {
    return (tokens + kChunkTokens - 1) / kChunkTokens;
  }

  template <typename Fn>
  void for_chunks(std::uint32_t tokens, const Fn& fn) {
    const std::size_t chunks = num_chunks(tokens);
    context_.pool.parallel_for(num_heads_ * chunks, [&](std::size_t i) {
      const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
      fn(i, i / chunks, first, std::min(tokens, first + kChunkTokens));
    });
  }

  void find_lse() {
    const std::size_t chunks = num_chunks(input_.num_tokens());
    std::vector<RowStats> stats(num_heads_ * chunks * rows_);
    const auto body = for_isa<&chunk_stats>(context_.isa);
    for_chunks(input_.num_tokens(),
               [&](std::size_t item, std::size_t head, std::uint32_t first, std::uint32_t last) {
                 body(tasks_[head], first, last, stats.data() + item * rows_);
               });
    for (std::size_t i = 0; i < lse_.size(); ++i) {
      const std::size_t head = i / rows_;
      lse_[i] = merged_lse(stats.data() + head * chunks * rows_ + i % rows_, chunks, rows_);
    }
  }

  void copy_lse() {
    const std::size_t pushed = input_.queries.num_tokens, group = result_.op.group;
    for (std::size_t i = 0; i < lse_.size(); ++i) {
      const std::size_t q_head = i / rows_ * group + i % rows_ % group;
      lse_[i] = input_.lse[q_head * pushed + pushed - result_.op.rows + i % rows_ / group];
    }
  }

  void find_scales() {
    const std::size_t chunks = num_chunks(result_.op.columns);
    std::vector<double> masses(num_heads_ * chunks * rows_ * 2);
    const auto body = for_isa<&chunk_masses>(context_.isa);
    for_chunks(result_.op.columns,
               [&](std::size_t item, std::size_t head, std::uint32_t first, std::uint32_t last) {
                 body(tasks_[head], first, last, masses.data() + item * rows_ * 2);
               });
    scales_.resize(num_heads_ * rows_);
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      double before = 0, after = 0;
      for (std::size_t k = 0; k < chunks; ++k) {
        const double* of_row = masses.data() + ((i / rows_ * chunks + k) * rows_ + i % rows_) * 2;
        before += of_row[0];
        after += of_row[1];
      }
      scales_[i] = after > 0 ? static_cast<float>(before / after) : 1.0f;
    }
    for (std::size_t h = 0; h < num_heads_; ++h) tasks_[h].row_scale = scales_.data() + h * rows_;
  }

  void reduce_columns() {
    std::vector<ChunkMoments> moments(wants_.moments ? num_heads_ * num_chunks(result_.op.columns)
                                                     : 0);
    const auto body = for_isa<&chunk_columns>(context_.isa);
    for_chunks(result_.op.columns,
               [&](std::size_t item, std::size_t head, std::uint32_t first, std::uint32_t last) {
                 body(tasks_[head], first, last, wants_.moments ? &moments[item] : nullptr);
               });
    for (const ChunkMoments& chunk : moments) {
      result_.entropy += chunk.entropy;
      result_.variance += chunk.variance;
    }
  }

  const CpuContext& context_;
  const LayerInput& input_;
  const AttentionWants wants_;
  std::uint32_t num_heads_;
  std::size_t rows_ = 0;                     // per KV head
  std::vector<std::vector<float>> queries_;  // per KV head
  std::vector<float> lse_, scales_;          // [num_kv_heads, rows_]
  std::vector<float> reduced_;
  std::vector<HeadTask> tasks_;
  AttentionColumns result_;
};

}  // namespace

AttentionColumns attention_columns(const CpuContext& context, const Recipe& recipe,
                                   const LayerInput& input, const AttentionWants& wants) {
  return Passes(context, recipe, input, wants).run();
}

}  // namespace precis::kernels
