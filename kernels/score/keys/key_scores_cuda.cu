// knorm, keydiff, kvdiff and L1 norms on CUDA: passes over rows. keydiff:
//   unit_sums   the sum of a chunk's unit keys, rows of a chunk in a fixed order
//   anchors     the mean over a head's chunks, in f64 as on the CPU
//   keydiff     each key against its head's anchor
// kvdiff is the same over keys without their RoPE, times norms of V.
#include "kernels/score/keys/key_scores_cuda.h"

#include <cmath>

#include "kernels/common/tuning.h"
#include "kernels/score/keys/key_scores_op.h"
#include "kernels/score/keys/turned_rows.cuh"

namespace precis::kernels {
namespace {

enum class Norm { kMinusL2, kL1 };

// One row per group of lanes. grid (blocks).
template <int kEach, int kUnits>
__global__ void row_norms(RowsDevice rows, Norm norm, std::uint64_t num_rows, float* out) {
  const std::uint64_t row = std::uint64_t{blockIdx.x} * rows.groups() + rows.group();
  RowPart<kEach, kUnits> part;
  part.load(rows, row, row < num_rows);
  float sum = 0;
  part.each(rows, [&](std::uint32_t, float x) { sum += norm == Norm::kL1 ? fabsf(x) : x * x; });
  sum = sum_over_row(sum, rows.lanes);
  if (rows.lane() == 0 && row < num_rows) out[row] = norm == Norm::kL1 ? sum : -sqrtf(sum);
}

struct KeydiffTask {
  RowsDevice rows;
  TurnsDevice turns;
  std::uint32_t num_tokens, chunks;
  float* sums;     // [heads, chunks, dim]
  float* anchors;  // [heads, dim]
  float* out;
};

// grid (chunks, heads). Sums a group's rows in order, then the groups in order.
template <int kEach, int kUnits>
__global__ void unit_sums(KeydiffTask task) {
  const RowsDevice& rows = task.rows;
  auto* of_groups = shared_memory<float>();  // [groups, dim]
  const std::uint32_t first = blockIdx.x * kKeyChunkTokens;
  const std::uint32_t last = min(task.num_tokens, first + kKeyChunkTokens);
  float total[kUnits][kEach] = {};
  RowPart<kEach, kUnits> part;
  for (std::uint32_t t0 = first; t0 < last; t0 += rows.groups()) {
    const std::uint32_t token = t0 + rows.group();
    if (token < last) {
      load_key(rows, task.turns, task.num_tokens,
               std::uint64_t{blockIdx.y} * task.num_tokens + token, token, part);
    } else {
      part.load(rows, 0, false);
    }
    float square = 0;
    part.each(rows, [&](std::uint32_t, float x) { square += x * x; });
    const float inverse = 1.0f / guarded_norm(sqrtf(sum_over_row(square, rows.lanes)));
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) total[u][e] += part.x[u][e] * inverse;
    }
  }
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) part.x[u][e] = total[u][e];
  }
  part.each(rows, [&](std::uint32_t c, float x) { of_groups[rows.group() * rows.dim + c] = x; });
  __syncthreads();
  float* out = task.sums + (std::uint64_t{blockIdx.y} * task.chunks + blockIdx.x) * rows.dim;
  for (std::uint32_t c = threadIdx.x; c < rows.dim; c += blockDim.x) {
    float sum = 0;
    for (std::uint32_t g = 0; g < rows.groups(); ++g) sum += of_groups[g * rows.dim + c];
    out[c] = sum;
  }
}

// grid (blocks, heads); one thread per channel.
__global__ void mean_unit_keys(KeydiffTask task) {
  const std::uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, dim = task.rows.dim;
  if (c >= dim) return;
  const float* sums = task.sums + std::uint64_t{blockIdx.y} * task.chunks * dim;
  double sum = 0;
  for (std::uint32_t i = 0; i < task.chunks; ++i) sum += sums[std::uint64_t{i} * dim + c];
  task.anchors[blockIdx.y * dim + c] = static_cast<float>(sum / task.num_tokens);
}

// One row per group of lanes. grid (blocks, heads).
template <int kEach, int kUnits>
__global__ void keydiff_rows(KeydiffTask task) {
  const RowsDevice& rows = task.rows;
  const std::uint32_t token = blockIdx.x * rows.groups() + rows.group();
  const std::uint64_t row = std::uint64_t{blockIdx.y} * task.num_tokens + token;
  const float* anchor = task.anchors + blockIdx.y * rows.dim;
  RowPart<kEach, kUnits> part;
  load_key(rows, task.turns, task.num_tokens, row, token, part);
  float product = 0, square = 0, anchor_square = 0;
  part.each(rows, [&](std::uint32_t c, float x) {
    const float a = anchor[c];
    product += x * a;
    square += x * x;
    anchor_square += a * a;
  });
  product = sum_over_row(product, rows.lanes);
  square = sum_over_row(square, rows.lanes);
  anchor_square = sum_over_row(anchor_square, rows.lanes);
  if (rows.lane() != 0 || token >= task.num_tokens) return;
  task.out[row] = keydiff_score(product, 1.0f / guarded_norm(sqrtf(square)), sqrtf(anchor_square));
}

struct KvdiffTask {
  std::uint32_t num_tokens;
  float* norms;  // [heads, num_tokens], -||v||
  float* means;  // [heads]
  float* out;    // [heads, num_tokens], scores of keydiff
};

// grid (heads). Each thread sums every blockDim.x-th norm in f64, then the warps' sums are added in
// order.
__global__ void mean_norms(KvdiffTask task) {
  auto* of_warps = shared_memory<double>();
  const float* norms = task.norms + std::uint64_t{blockIdx.x} * task.num_tokens;
  double sum = 0;
  for (std::uint32_t t = threadIdx.x; t < task.num_tokens; t += blockDim.x) sum -= norms[t];
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (std::uint32_t w = 1; w < blockDim.x / kWarp; ++w) sum += of_warps[w];
  task.means[blockIdx.x] = static_cast<float>(sum / task.num_tokens);
}

// grid (blocks, heads).
__global__ void weigh_by_norms(KvdiffTask task) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= task.num_tokens) return;
  const std::uint64_t i = std::uint64_t{blockIdx.y} * task.num_tokens + token;
  task.out[i] = kvdiff_score(task.out[i], -task.norms[i], task.means[blockIdx.y]);
}

RowsDevice device_rows(const HeadRowsDevice& heads) {
  return rows_of(heads.rows, heads.dtype, heads.head_dim);
}

std::uint32_t chunks_of(const HeadRowsDevice& keys) {
  return ceil_div(keys.num_tokens, kKeyChunkTokens);
}

Status launch_norms(const HeadRowsDevice& heads, Norm norm, float* out, Stream& stream) {
  const RowsDevice rows = device_rows(heads);
  const std::uint64_t num_rows = std::uint64_t{heads.num_heads} * heads.num_tokens;
  return for_rows(rows, [&]<int kEach, int kUnits>() {
    return launch("row norms", row_norms<kEach, kUnits>,
                  ceil_div(num_rows, kElementwiseThreads / rows.lanes), kElementwiseThreads, 0,
                  stream, rows, norm, num_rows, out);
  });
}

Status launch_differences(const HeadRowsDevice& keys, const TurnsDevice& turns, void* workspace,
                          float* out, Stream& stream) {
  const RowsDevice rows = device_rows(keys);
  KeydiffTask task{rows, turns, keys.num_tokens, chunks_of(keys), static_cast<float*>(workspace),
                   {},   out};
  task.anchors = task.sums + std::size_t{keys.num_heads} * task.chunks * keys.head_dim;
  const std::uint32_t groups = kElementwiseThreads / rows.lanes;
  PRECIS_TRY(for_rows(rows, [&]<int kEach, int kUnits>() {
    return launch("keydiff: unit_sums", unit_sums<kEach, kUnits>, dim3(task.chunks, keys.num_heads),
                  kElementwiseThreads, std::size_t{groups} * keys.head_dim * sizeof(float), stream,
                  task);
  }));
  const dim3 channels(ceil_div(keys.head_dim, kElementwiseThreads), keys.num_heads);
  PRECIS_TRY(
      launch("keydiff: anchors", mean_unit_keys, channels, kElementwiseThreads, 0, stream, task));
  return for_rows(rows, [&]<int kEach, int kUnits>() {
    return launch("keydiff: rows", keydiff_rows<kEach, kUnits>,
                  dim3(ceil_div(keys.num_tokens, groups), keys.num_heads), kElementwiseThreads, 0,
                  stream, task);
  });
}

}  // namespace

Status launch_knorm(const HeadRowsDevice& keys, float* out, Stream& stream) {
  return launch_norms(keys, Norm::kMinusL2, out, stream);
}

Status launch_l1_norms(const HeadRowsDevice& rows, float* out, Stream& stream) {
  return launch_norms(rows, Norm::kL1, out, stream);
}

std::size_t keydiff_workspace_bytes(const HeadRowsDevice& keys) {
  return std::size_t{keys.num_heads} * (chunks_of(keys) + 1) * keys.head_dim * sizeof(float);
}

Status launch_keydiff(const HeadRowsDevice& keys, void* workspace, float* out, Stream& stream) {
  return launch_differences(keys, {}, workspace, out, stream);
}

std::size_t kvdiff_workspace_bytes(const HeadRowsDevice& keys) {
  return keydiff_workspace_bytes(keys) +
         std::size_t{keys.num_heads} * (std::size_t{keys.num_tokens} + 1) * sizeof(float);
}

Status launch_kvdiff(const HeadRowsDevice& keys, const HeadRowsDevice& values,
                     const TurnsDevice& turns, void* workspace, float* out, Stream& stream) {
  PRECIS_TRY(launch_differences(keys, turns, workspace, out, stream));
  KvdiffTask task{keys.num_tokens, {}, {}, out};
  task.norms = static_cast<float*>(workspace) + keydiff_workspace_bytes(keys) / sizeof(float);
  task.means = task.norms + std::size_t{keys.num_heads} * keys.num_tokens;
  PRECIS_TRY(launch_norms(values, Norm::kMinusL2, task.norms, stream));
  PRECIS_TRY(launch("kvdiff: means", mean_norms, keys.num_heads, kElementwiseThreads,
                    kElementwiseThreads / kWarp * sizeof(double), stream, task));
  const dim3 grid(ceil_div(keys.num_tokens, kElementwiseThreads), keys.num_heads);
  return launch("kvdiff: weigh", weigh_by_norms, grid, kElementwiseThreads, 0, stream, task);
}

}  // namespace precis::kernels
