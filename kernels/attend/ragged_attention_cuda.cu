// Attention over ragged heads on CUDA. The lanes that share a row walk over a part of a head's rows
// with a softmax relative to the largest logit so far. A second kernel merges the parts of a head,
// in their order.
#include "kernels/attend/ragged_attention_cuda.h"
#include "kernels/common/tuning.h"
#include "kernels/score/keys/rows.cuh"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kQueries = 4;  // that share the loads of a row
// Rows that the lanes of one row take, one after another: 4,000 rows of 8 heads are 500 parts, a
// few for each multiprocessor. Chosen by arithmetic, not yet measured.
constexpr std::uint32_t kRaggedPartRows = 64;
constexpr float kNone = -3.0e38f;  // below every logit; a difference of two is no NaN

// The results of one part for one query: the largest logit, the sum of weights, the mixed values.
__host__ __device__ std::uint32_t result_floats(std::uint32_t head_dim) { return 2 + head_dim; }

struct Task {
  RaggedAttentionDevice of;
  RowsDevice shape;     // of the rows; its data is not used
  std::uint32_t parts;  // of the largest rows
  __device__ float* result(std::uint32_t rows, std::uint32_t part, std::uint32_t query) const {
    const std::uint64_t at = (std::uint64_t{rows} * parts + part) * of.group + query;
    return of.work + at * result_floats(of.head_dim);
  }
};

// grid (blocks of parts, rows, tiles of queries)
template <int kEach, int kUnits>
__global__ void attend_parts(Task task) {
  const RaggedAttentionDevice& of = task.of;
  const RaggedRows rows = of.rows[blockIdx.y];
  RowsDevice keys = task.shape, values = task.shape;
  keys.data = rows.keys;
  values.data = rows.values;
  const std::uint32_t part = blockIdx.x * keys.groups() + keys.group();
  const std::uint32_t first = part * kRaggedPartRows, query0 = blockIdx.z * kQueries;
  float largest[kQueries], sum[kQueries], mixed[kQueries][kUnits][kEach] = {};
  for (std::uint32_t q = 0; q < kQueries; ++q) {
    largest[q] = kNone;
    sum[q] = 0;
  }
  // All lanes of a warp take part in the shuffles, so the loop's bound is the same for all.
  for (std::uint32_t i = 0; i < kRaggedPartRows; ++i) {
    const bool inside = first + i < rows.count;
    RowPart<kEach, kUnits> row;
    row.load(keys, first + i, inside);
    float logits[kQueries];
    for (std::uint32_t q = 0; q < kQueries; ++q) {
      const std::uint32_t query = min(query0 + q, of.group - 1);
      const float* x = of.queries + (std::uint64_t{rows.head} * of.group + query) * of.head_dim;
      float product = 0;
      row.each(keys, [&](std::uint32_t c, float k) { product += k * x[c]; });
      logits[q] = sum_over_row(product, keys.lanes) * of.scale;
    }
    if (!inside) continue;
    row.load(values, first + i, true);
    for (std::uint32_t q = 0; q < kQueries; ++q) {
      const float top = fmaxf(largest[q], logits[q]);
      const float less = exp_f32(largest[q] - top), weight = exp_f32(logits[q] - top);
      largest[q] = top;
      sum[q] = sum[q] * less + weight;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          mixed[q][u][e] = mixed[q][u][e] * less + weight * row.x[u][e];
        }
      }
    }
  }
  if (part >= task.parts) return;
  for (std::uint32_t q = 0; q < kQueries && query0 + q < of.group; ++q) {
    float* result = task.result(blockIdx.y, part, query0 + q);
    if (keys.lane() == 0) {
      result[0] = largest[q];
      result[1] = sum[q];
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const std::uint32_t unit = keys.lane() + static_cast<std::uint32_t>(u) * keys.lanes;
      if (unit >= keys.units) continue;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        result[2 + unit * kEach + static_cast<std::uint32_t>(e)] = mixed[q][u][e];
      }
    }
  }
}

// grid (query heads)
__global__ void merge_parts(Task task) {
  const RaggedAttentionDevice& of = task.of;
  const std::uint32_t head = blockIdx.x / of.group, query = blockIdx.x % of.group;
  float top = kNone;
  for (std::uint32_t r = 0; r < of.num_rows; ++r) {
    if (of.rows[r].head != head) continue;
    for (std::uint32_t p = 0; p < task.parts; ++p) top = fmaxf(top, *task.result(r, p, query));
  }
  for (std::uint32_t c = threadIdx.x; c < of.head_dim; c += blockDim.x) {
    float sum = 0, mixed = 0;
    for (std::uint32_t r = 0; r < of.num_rows; ++r) {
      if (of.rows[r].head != head) continue;
      for (std::uint32_t p = 0; p < task.parts; ++p) {
        const float* result = task.result(r, p, query);
        const float weight = result[1] > 0 ? exp_f32(result[0] - top) : 0.0f;
        sum += weight * result[1];
        mixed += weight * result[2 + c];
      }
    }
    of.out[std::uint64_t{blockIdx.x} * of.head_dim + c] = sum > 0 ? mixed / sum : 0.0f;
  }
}

std::uint32_t parts_of(const RaggedAttentionDevice& task) {
  return ceil_div(task.largest, kRaggedPartRows);
}

}  // namespace

std::size_t ragged_work_floats(const RaggedAttentionDevice& task) {
  return std::size_t{task.num_rows} * parts_of(task) * task.group * result_floats(task.head_dim);
}

Status launch_ragged_attention(const RaggedAttentionDevice& of, Stream& stream) {
  const Task task{of, rows_of(nullptr, of.dtype, of.head_dim), parts_of(of)};
  const std::uint32_t groups = kElementwiseThreads / task.shape.lanes;
  const dim3 grid(ceil_div(task.parts, groups), of.num_rows, ceil_div(of.group, kQueries));
  PRECIS_TRY(for_rows(task.shape, [&]<int kEach, int kUnits>() {
    return launch("ragged attention", attend_parts<kEach, kUnits>, grid, kElementwiseThreads, 0,
                  stream, task);
  }));
  return launch("merged attention", merge_parts, dim3(of.num_kv_heads * of.group),
                kElementwiseThreads, 0, stream, task);
}

}  // namespace precis::kernels
