// Value norms and forms on CUDA: products of rows with W_O, its Gram matrix or a covariance,
// reduced while they are in registers, so that the products are never in memory. A block of threads
// holds the rows of some tokens, called "values" here, and multiplies them with the matrix of each
// query head, tile by tile.
#include "kernels/score/values/value_norms_cuda.h"

#include <cmath>

#include "kernels/common/mma.cuh"
#include "kernels/common/tuning.h"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kWarps = kElementwiseThreads / kWarp;

enum class Norm { kL1, kGram, kForm };

struct NormTask {
  ValueNormsDevice d;
  Norm norm;
  const void* matrices;  // [query heads, head_dim, width]
  Dtype matrix_dtype;
  std::uint32_t width;
  // RowFormsDevice's vectors and scales, for kForm; its forms are written to d.norms.
  const float* vectors = nullptr;
  float vector_scale = 0, scale = 0;
  __device__ std::uint64_t value_at(std::uint32_t head, std::uint32_t token) const {
    return (std::uint64_t{head} * d.num_tokens + token) * d.head_dim;
  }
  __device__ std::uint64_t form_at(std::uint32_t head, std::uint32_t g, std::uint32_t token) const {
    return (std::uint64_t{head} * d.group + g) * d.num_tokens + token;
  }
  __device__ std::uint64_t matrix_at(std::uint32_t head, std::uint32_t g) const {
    return (std::uint64_t{head} * d.group + g) * d.head_dim * width;
  }
};

// The term that element w of a product with query head g's matrix adds. `value` is element w of the
// value, used by kGram and kForm.
__device__ float term(const NormTask& task, std::uint64_t q_head, std::uint32_t w, float product,
                      float value) {
  if (task.norm == Norm::kL1) return fabsf(product);
  if (task.norm == Norm::kForm && w < task.width) {
    product += task.vector_scale * task.vectors[q_head * task.width + w];
  }
  return product * value;
}
__device__ float finished(const NormTask& task, float sum) {
  if (task.norm == Norm::kForm) return sum * task.scale;
  return task.norm == Norm::kL1 ? sum : sqrtf(sum > 0 ? sum : 0.0f);
}

// In f32, for inputs that are not bf16. A thread takes columns of the matrix, for all of the
// block's tokens. grid (blocks of kPlainTokens, kv heads).
struct PlainShared {
  float values[kPlainTokens][limits::kHeadDimMax];
  float of_warps[kPlainTokens][kWarps];
};

__global__ void plain_norms(NormTask task) {
  auto& s = *shared_memory<PlainShared>();
  const std::uint32_t head = blockIdx.y, first = blockIdx.x * kPlainTokens;
  const std::uint32_t dim = task.d.head_dim;
  const std::uint32_t count = min(kPlainTokens, task.d.num_tokens - first);
  for (std::uint32_t i = threadIdx.x; i < kPlainTokens * dim; i += blockDim.x) {
    const std::uint32_t t = i / dim, c = i % dim;
    const std::uint64_t at = task.value_at(head, first + t) + c;
    s.values[t][c] = t < count ? element(task.d.dtype, task.d.values, at) : 0.0f;
  }
  __syncthreads();
  float total = 0;  // of token threadIdx.x, over the group
  for (std::uint32_t g = 0; g < task.d.group; ++g) {
    float sums[kPlainTokens] = {};
    for (std::uint32_t w = threadIdx.x; w < task.width; w += blockDim.x) {
      float products[kPlainTokens] = {};
      for (std::uint32_t c = 0; c < dim; ++c) {
        const float x = element(task.matrix_dtype, task.matrices,
                                task.matrix_at(head, g) + std::uint64_t{c} * task.width + w);
#pragma unroll
        for (std::uint32_t t = 0; t < kPlainTokens; ++t) products[t] += s.values[t][c] * x;
      }
#pragma unroll
      for (std::uint32_t t = 0; t < kPlainTokens; ++t) {
        sums[t] += term(task, std::uint64_t{head} * task.d.group + g, w, products[t],
                        task.norm == Norm::kL1 ? 0.0f : s.values[t][w]);
      }
    }
#pragma unroll
    for (std::uint32_t t = 0; t < kPlainTokens; ++t) {
      for (int step = kWarp / 2; step > 0; step /= 2) {
        sums[t] += __shfl_xor_sync(kWholeWarp, sums[t], step);
      }
      if (threadIdx.x % kWarp == 0) s.of_warps[t][threadIdx.x / kWarp] = sums[t];
    }
    __syncthreads();
    if (threadIdx.x < kPlainTokens) {
      float sum = 0;
      for (std::uint32_t w = 0; w < kWarps; ++w) sum += s.of_warps[threadIdx.x][w];
      total += finished(task, sum);
    }
    if (task.norm == Norm::kForm && threadIdx.x < count) {
      task.d.norms[task.form_at(head, g, first + threadIdx.x)] = total;
      total = 0;
    }
    __syncthreads();
  }
  if (task.norm != Norm::kForm && threadIdx.x < count) {
    task.d.norms[std::uint64_t{head} * task.d.num_tokens + first + threadIdx.x] =
        total / static_cast<float>(task.d.group);
  }
}

// Elements c and c + 1 of a value, zeros beyond it.
__device__ std::uint32_t value_pair(const NormTask& task, std::uint64_t at, bool inside,
                                    std::uint32_t c) {
  const auto* values = static_cast<const std::uint16_t*>(task.d.values) + at;
  const std::uint32_t dim = task.d.head_dim;
  return pair_of(inside && c < dim ? values[c] : 0, inside && c + 1 < dim ? values[c + 1] : 0);
}

// A tile of a matrix, kColumns columns: rows 2i and 2i + 1 share a word. The padding keeps the
// lanes of a warp in different banks. An f32 fills three planes.
template <int kSteps, int kPlanes, int kColumns>
struct MatrixTile {
  std::uint32_t pairs[kPlanes][kSteps * 8][kColumns + 8];

  __device__ void load(const NormTask& task, std::uint64_t matrix, std::uint32_t first) {
    for (std::uint32_t i = threadIdx.x; i < kSteps * 8 * kColumns; i += blockDim.x) {
      const std::uint32_t row = i / kColumns, column = i % kColumns;
      if constexpr (kPlanes == 1) {
        const auto* words = static_cast<const std::uint16_t*>(task.matrices);
        const auto at = [&](std::uint32_t r) -> std::uint16_t {
          const bool inside = r < task.d.head_dim && first + column < task.width;
          return inside ? words[matrix + std::uint64_t{r} * task.width + first + column] : 0;
        };
        pairs[0][row][column] = pair_of(at(2 * row), at(2 * row + 1));
      } else {
        const auto* words = static_cast<const float*>(task.matrices);
        const auto at = [&](std::uint32_t r) {
          const bool inside = r < task.d.head_dim && first + column < task.width;
          return inside ? words[matrix + std::uint64_t{r} * task.width + first + column] : 0.0f;
        };
        float low = at(2 * row), high = at(2 * row + 1);
#pragma unroll
        for (int p = 0; p < kPlanes; ++p) {
          const std::uint16_t part = take_bf16(low);
          pairs[p][row][column] = pair_of(part, take_bf16(high));
        }
      }
    }
  }
};

// 16 tokens a warp, their values in registers throughout. grid (blocks of tokens, kv heads).
template <int kSteps, int kPlanes, int kColumns>
__global__ void __launch_bounds__(kElementwiseThreads) mma_norms(NormTask task) {
  auto& tile = *shared_memory<MatrixTile<kSteps, kPlanes, kColumns>>();
  const std::uint32_t lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  const std::uint32_t head = blockIdx.y;
  const std::uint32_t token = (blockIdx.x * kWarps + threadIdx.x / kWarp) * 16 + group;
  const bool inside[2] = {token < task.d.num_tokens, token + 8 < task.d.num_tokens};
  const std::uint64_t at[2] = {task.value_at(head, token), task.value_at(head, token + 8)};
  std::uint32_t values[kSteps][4];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t c = static_cast<std::uint32_t>(s) * 16 + i / 2 * 8 + quad * 2;
      values[s][i] = value_pair(task, at[i % 2], inside[i % 2], c);
    }
  }
  float totals[2] = {};
  for (std::uint32_t g = 0; g < task.d.group; ++g) {
    float sums[2] = {};
    for (std::uint32_t first = 0; first < task.width; first += kColumns) {
      __syncthreads();
      tile.load(task, task.matrix_at(head, g), first);
      __syncthreads();
#pragma unroll
      for (std::uint32_t n = 0; n < kColumns; n += 8) {
        float products[4] = {};
#pragma unroll
        for (int p = kPlanes - 1; p >= 0; --p) {  // the smallest parts first
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
            const std::uint32_t row = static_cast<std::uint32_t>(s) * 8 + quad;
            const std::uint32_t b[2] = {tile.pairs[p][row][n + group],
                                        tile.pairs[p][row + 4][n + group]};
            multiply_add_bf16(products, values[s], b);
          }
        }
#pragma unroll
        for (std::uint32_t i = 0; i < 2; ++i) {
          const std::uint32_t w = first + n + quad * 2;
          const std::uint32_t pair =
              task.norm == Norm::kL1 ? 0 : value_pair(task, at[i], inside[i], w);
          const std::uint64_t q_head = std::uint64_t{head} * task.d.group + g;
          sums[i] +=
              term(task, q_head, w, products[2 * i], f32_of_bf16(static_cast<std::uint16_t>(pair)));
          sums[i] += term(task, q_head, w + 1, products[2 * i + 1],
                          f32_of_bf16(static_cast<std::uint16_t>(pair >> 16)));
        }
      }
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      sums[i] += __shfl_xor_sync(kWholeWarp, sums[i], 1);
      sums[i] += __shfl_xor_sync(kWholeWarp, sums[i], 2);
      const float norm = finished(task, sums[i]);
      totals[i] += norm;
      if (task.norm != Norm::kForm || quad != 0 || !inside[i]) continue;
      task.d.norms[task.form_at(head, g, token + 8 * i)] = norm;
    }
  }
  if (task.norm == Norm::kForm) return;
#pragma unroll
  for (std::uint32_t i = 0; i < 2; ++i) {
    if (quad != 0 || !inside[i]) continue;
    task.d.norms[std::uint64_t{head} * task.d.num_tokens + token + 8 * i] =
        totals[i] / static_cast<float>(task.d.group);
  }
}

template <int kSteps, int kPlanes, int kColumns>
Status launch_mma(const NormTask& task, Stream& stream) {
  const dim3 grid(ceil_div(task.d.num_tokens, kWarps * 16), task.d.num_kv_heads);
  return launch("value norms: tensor cores", mma_norms<kSteps, kPlanes, kColumns>, grid,
                kElementwiseThreads, sizeof(MatrixTile<kSteps, kPlanes, kColumns>), stream, task);
}

Status launch_plain(const NormTask& task, Stream& stream) {
  const dim3 grid(ceil_div(task.d.num_tokens, kPlainTokens), task.d.num_kv_heads);
  return launch("value norms: plain", plain_norms, grid, kElementwiseThreads, sizeof(PlainShared),
                stream, task);
}

// For f32 matrices that are as wide as a row.
Status launch_square(const NormTask& task, Stream& stream) {
  if (task.d.dtype != Dtype::kBf16 || task.d.head_dim > 256) return launch_plain(task, stream);
  if (task.d.head_dim <= 64) return launch_mma<4, 3, 32>(task, stream);
  if (task.d.head_dim <= 128) return launch_mma<8, 3, 32>(task, stream);
  return launch_mma<16, 3, 16>(task, stream);
}

}  // namespace

Status launch_l1_exact(const ValueNormsDevice& d, Stream& stream) {
  const NormTask task{d, Norm::kL1, d.weights, d.weights_dtype, d.width};
  const bool bf16 = d.dtype == Dtype::kBf16 && d.weights_dtype == Dtype::kBf16;
  if (!bf16 || d.head_dim > 256) return launch_plain(task, stream);
  if (d.head_dim <= 64) return launch_mma<4, 1, 64>(task, stream);
  if (d.head_dim <= 128) return launch_mma<8, 1, 64>(task, stream);
  return launch_mma<16, 1, 64>(task, stream);
}

Status launch_l2_gram(const ValueNormsDevice& d, Stream& stream) {
  return launch_square({d, Norm::kGram, d.gram, Dtype::kF32, d.head_dim}, stream);
}

Status launch_row_forms(const RowFormsDevice& forms, Stream& stream) {
  ValueNormsDevice d{};
  d.num_kv_heads = forms.num_heads;
  d.group = forms.group;
  d.num_tokens = forms.num_tokens;
  d.head_dim = forms.head_dim;
  d.dtype = forms.dtype;
  d.values = forms.rows;
  d.norms = forms.forms;
  return launch_square({d, Norm::kForm, forms.matrices, Dtype::kF32, forms.head_dim, forms.vectors,
                        forms.vector_scale, forms.scale},
                       stream);
}

}  // namespace precis::kernels
