// Window-attention score on the CPU: two passes over K in chunks of tokens, so that scratch is
// small whatever the window and the length (policies.md A1). Pass 1 finds each row's log-sum-exp
// (skipped where it was pushed), pass 2 recomputes the logits and accumulates the weights of the
// past columns.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "kernels/score/score.h"
#include "kernels/score/window_attention_op.h"

namespace precis::kernels {
namespace {

constexpr std::size_t kTileTokens = 2 * kLanes;  // 4 x 2 accumulators fit every register file
constexpr std::size_t kTileRows = 4;
constexpr std::uint32_t kChunkTokens = 1024;  // one work item
constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// One KV head: its keys and the rows that observe it, [group * window, head_dim] rounded up to
// whole tiles with zero rows, scaled by 1/sqrt(head_dim).
struct HeadTask {
  WindowAttentionOp op;
  const std::byte* keys;
  Dtype dtype;
  std::uint32_t num_tokens;
  std::size_t head_dim, num_rows;
  const float* queries;
  const float* lse;  // [num_rows]; read by pass 2
  float* columns;    // [group, past]; pass 2 adds to it
};

// Streaming softmax of one row: the largest logit so far and the sum of exp(logit - largest).
struct RowStats {
  float largest = kNegativeInfinity;
  float sum = 0;
};

// keys_t[c][t]: a tile of keys, widened and transposed so that tokens lie along the lanes. Missing
// tokens are zero.
PRECIS_INLINE void load_tile(const HeadTask& task, std::uint32_t first, std::size_t count,
                             float* row, float* keys_t) {
  const std::size_t dim = task.head_dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  if (count < kTileTokens) std::fill(keys_t, keys_t + dim * kTileTokens, 0.0f);
  for (std::size_t t = 0; t < count; ++t) {
    const float* key = widen(task.dtype, task.keys + (first + t) * row_bytes, dim, row);
    for (std::size_t c = 0; c < dim; ++c) keys_t[c * kTileTokens + t] = key[c];
  }
}

// logits[r][t] = queries[r] . keys[t] for kTileRows rows.
PRECIS_INLINE void tile_logits(const float* queries, const float* keys_t, std::size_t dim,
                               float (*logits)[kTileTokens]) {
  Lanes sum[kTileRows][2] = {};
  for (std::size_t c = 0; c < dim; ++c) {
    const Lanes low = load_lanes(keys_t + c * kTileTokens);
    const Lanes high = load_lanes(keys_t + c * kTileTokens + kLanes);
    for (std::size_t r = 0; r < kTileRows; ++r) {
      const float q = queries[r * dim + c];
      sum[r][0] += q * low;
      sum[r][1] += q * high;
    }
  }
  for (std::size_t r = 0; r < kTileRows; ++r) {
    store_lanes(logits[r], sum[r][0]);
    store_lanes(logits[r] + kLanes, sum[r][1]);
  }
}

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
  std::vector<float> row(task.head_dim), keys_t(task.head_dim * kTileTokens);
  float logits[kTileRows][kTileTokens];
  for (std::uint32_t tile = first; tile < last; tile += kTileTokens) {
    const std::size_t count = std::min<std::size_t>(kTileTokens, last - tile);
    load_tile(task, tile, count, row.data(), keys_t.data());
    for (std::size_t r0 = 0; r0 < task.num_rows; r0 += kTileRows) {
      tile_logits(task.queries + r0 * task.head_dim, keys_t.data(), task.head_dim, logits);
      for (std::size_t r = r0; r < std::min(r0 + kTileRows, task.num_rows); ++r) {
        const std::uint32_t visible =
            task.op.visible(static_cast<std::uint32_t>(r % task.op.window));
        if (visible <= tile) continue;
        fold_row(logits[r - r0], std::min<std::size_t>(count, visible - tile), stats[r]);
      }
    }
  }
}

// Pass 2 over past tokens [first, last): adds every row's weights to its query head's columns.
PRECIS_INLINE void chunk_columns(const HeadTask& task, std::uint32_t first, std::uint32_t last) {
  std::vector<float> row(task.head_dim), keys_t(task.head_dim * kTileTokens);
  float logits[kTileRows][kTileTokens];
  for (std::uint32_t tile = first; tile < last; tile += kTileTokens) {
    const std::size_t count = std::min<std::size_t>(kTileTokens, last - tile);
    load_tile(task, tile, count, row.data(), keys_t.data());
    for (std::size_t r0 = 0; r0 < task.num_rows; r0 += kTileRows) {
      tile_logits(task.queries + r0 * task.head_dim, keys_t.data(), task.head_dim, logits);
      for (std::size_t r = r0; r < std::min(r0 + kTileRows, task.num_rows); ++r) {
        const float* z = logits[r - r0];
        const float lse = task.lse[r];
        const Reduce reduce = task.op.row_reduce;
        float* column = task.columns + r / task.op.window * task.op.past + tile;
        for (std::size_t t = 0; t < count; ++t) {
          column[t] =
              WindowAttentionOp::reduced(reduce, column[t], WindowAttentionOp::weight(z[t], lse));
        }
      }
    }
  }
}

// The rows observing KV head `head`, [group * window] in f32, scaled, padded to whole tiles.
std::vector<float> observing_rows(const LayerInput& input, const WindowAttentionOp& op,
                                  std::uint32_t head) {
  const std::size_t dim = input.keys.head_dim;
  const std::size_t rows = std::size_t{op.group} * op.window;
  std::vector<float> out((rows + kTileRows - 1) / kTileRows * kTileRows * dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const std::uint32_t skipped = input.queries.num_tokens - op.window;
  std::vector<float> scratch(dim);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto q_head = static_cast<std::uint32_t>(head * op.group + r / op.window);
    const auto token = static_cast<std::uint32_t>(skipped + r % op.window);
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
class WindowAttention {
 public:
  WindowAttention(const CpuContext& context, const Recipe& recipe, const LayerInput& input)
      : context_(context), input_(input), num_heads_(input.num_kv_heads()) {
    const std::uint32_t group = input.num_q_heads / num_heads_;
    op_ = WindowAttentionOp::of(recipe, input.num_tokens(), input.queries.num_tokens, group);
    rows_ = std::size_t{group} * op_.window;
    lse_.resize(num_heads_ * rows_);
    columns_.resize(std::size_t{num_heads_} * group * op_.past);
    for (std::uint32_t h = 0; h < num_heads_; ++h) {
      queries_.push_back(observing_rows(input, op_, h));
      tasks_.push_back({op_, input.keys.head(h), input.keys.dtype, input.num_tokens(),
                        input.keys.head_dim, rows_, queries_[h].data(), lse_.data() + h * rows_,
                        columns_.data() + std::size_t{h} * group * op_.past});
    }
  }

  void run(std::span<float> scores) {
    input_.lse.empty() ? find_lse() : copy_lse();
    const auto body = for_isa<&chunk_columns>(context_.isa);
    for_chunks(op_.past, [&](std::size_t, std::size_t head, std::uint32_t first,
                             std::uint32_t last) { body(tasks_[head], first, last); });
    const std::uint32_t n = input_.num_tokens();
    for_chunks(n, [&](std::size_t, std::size_t head, std::uint32_t first, std::uint32_t last) {
      for (std::uint32_t t = first; t < last; ++t) {
        scores[head * n + t] = t < op_.past ? op_.score(tasks_[head].columns, t)
                                            : std::numeric_limits<float>::infinity();
      }
    });
  }

 private:
  template <typename Fn>
  void for_chunks(std::uint32_t tokens, const Fn& fn) {
    const std::size_t chunks = (tokens + kChunkTokens - 1) / kChunkTokens;
    context_.pool.parallel_for(num_heads_ * chunks, [&](std::size_t i) {
      const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
      fn(i, i / chunks, first, std::min(tokens, first + kChunkTokens));
    });
  }

  void find_lse() {
    const std::size_t chunks = (input_.num_tokens() + kChunkTokens - 1) / kChunkTokens;
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
    const std::size_t pushed = input_.queries.num_tokens;
    for (std::size_t i = 0; i < lse_.size(); ++i) {
      lse_[i] = input_.lse[i / op_.window * pushed + pushed - op_.window + i % op_.window];
    }
  }

  const CpuContext& context_;
  const LayerInput& input_;
  std::uint32_t num_heads_;
  WindowAttentionOp op_;
  std::size_t rows_ = 0;
  std::vector<std::vector<float>> queries_;  // per KV head
  std::vector<float> lse_;                   // [num_q_heads, window]
  std::vector<float> columns_;               // [num_q_heads, past]
  std::vector<HeadTask> tasks_;
};

}  // namespace

void score_window_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                const LayerInput& input, std::span<float> scores) {
  WindowAttention(context, recipe, input).run(scores);
}

}  // namespace precis::kernels
