// Shared by the kernels of window attention, plain and on tensor cores. Only for kernel sources.
#pragma once

#include "kernels/score/attention/window_attention_cuda.h"

namespace precis::kernels {

// The sum of a row's weights over some tokens, and of its pooled weights.
struct RowMasses {
  double before, after;
};
// A tile's part of AttentionColumns::entropy and variance.
struct TileMoments {
  double entropy, variance;
};

// rows: num_q_heads * op.rows; the rows of a query head are contiguous.
struct WindowWorkspace {
  float* largest;     // [rows, spans], if there are several spans
  float* sum;         // the same
  RowMasses* masses;  // [rows, mass_spans]; reuses the memory of the two above
  float* lse;         // [rows]
  float* scales;      // [rows]
  // [KV heads or query heads, op.columns]: of all KV heads, or of heads_at_once.
  float* columns;
  TileMoments* moments;  // [num_kv_heads, tiles of columns]
};

struct WindowLaunch {
  WindowAttentionDevice task;
  WindowWorkspace work;
  std::uint32_t tile_tokens, num_tiles;
  // Softmaxes are computed in spans of span_tiles tiles, so that the stored stats of each row stay
  // small.
  std::uint32_t span_tiles, num_spans;
  std::uint32_t heads_at_once;  // KV heads whose columns are computed and finished in one launch
  float scale;                  // 1/sqrt(head_dim)

  // The log-sum-exps of a query head's observing rows.
  PRECIS_HOST_DEVICE const float* lse_of(std::uint32_t q_head) const {
    return task.lse != nullptr
               ? task.lse + std::uint64_t{q_head} * task.pushed + task.pushed - task.op.rows
               : work.lse + std::uint64_t{q_head} * task.op.rows;
  }
  // Whether columns are reduced over the group when they are computed; else when they are finished.
  PRECIS_HOST_DEVICE bool groups_columns() const {
    return task.op.pool_order != PoolOrder::kRowsPoolGroup;
  }
};

// The tensor-core kernels: for products of bf16 rows that are multiples of 16 bytes.
inline constexpr std::uint32_t kWindowMmaTileTokens = 64;
bool takes_window_mma(const WindowAttentionDevice& task);
Status launch_window_mma_stats(const WindowLaunch& launch, Stream& stream);    // span_stats
Status launch_window_mma_columns(const WindowLaunch& launch, Stream& stream);  // columns

// Columns whose rows are read one by one (window_rows_cuda.cu): rows are pooled before they are
// reduced, or reduced to more than one sum, or other results are needed besides scores.
bool takes_window_rows(const WindowAttentionDevice& task);
std::uint32_t window_rows_tiles(const AttentionOp& op);  // of columns
std::uint32_t window_rows_mass_spans(const WindowLaunch& launch);
// launch_window_row_scales() computes scales, for pooled rows that keep their mass;
// launch_window_rows() columns, task.mean and moments; launch_window_claim() task.claim from the
// moments of all heads.
Status launch_window_row_scales(const WindowLaunch& launch, Stream& stream);
Status launch_window_rows(const WindowLaunch& launch, Stream& stream);
Status launch_window_claim(const WindowLaunch& launch, Stream& stream);

}  // namespace precis::kernels
