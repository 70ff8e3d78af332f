// A tile of weights, row by row, for kernels that read rows one by one. Only for kernel sources.
//
// A KV head's observing rows are numbered as slots: query head after query head, or, if the group
// is reduced before the rows, row after row. A block of threads holds the weights of some slots at
// a time, over one tile of tokens.
#pragma once

#include "kernels/common/tuning.h"
#include "kernels/score/attention/window_mma.cuh"

namespace precis::kernels {

inline constexpr std::uint32_t kRowsThreads = kElementwiseThreads;
inline constexpr std::uint32_t kRowsTileTokens = kWindowMmaTileTokens;

// Row i of query head g of the group.
struct Slot {
  std::uint32_t g, i;
};

struct Slots {
  const WindowLaunch& l;
  std::uint32_t head;
  __device__ bool rows_outside() const { return l.task.op.pool_order == PoolOrder::kPoolGroupRows; }
  __device__ std::uint32_t count() const { return l.task.op.group * l.task.op.rows; }
  __device__ Slot at(std::uint32_t slot) const {
    const AttentionOp& op = l.task.op;
    if (rows_outside()) return {slot % op.group, slot / op.group};
    return {slot / op.rows, slot % op.rows};
  }
  __device__ std::uint64_t q_head(const Slot& slot) const {
    return std::uint64_t{head} * l.task.op.group + slot.g;
  }
  // The index among all observing rows.
  __device__ std::uint64_t row(const Slot& slot) const {
    return q_head(slot) * l.task.op.rows + slot.i;
  }
  // The index among all pushed queries.
  __device__ std::uint64_t query(const Slot& slot) const {
    return q_head(slot) * l.task.pushed + l.task.pushed - l.task.op.rows + slot.i;
  }
  // 0 if the row does not see the token.
  __device__ float weight(std::uint32_t number, std::uint32_t token, float logit) const {
    if (number >= count()) return 0;
    const Slot slot = at(number);
    if (token >= l.task.op.visible(slot.i)) return 0;
    return AttentionOp::weight(logit, l.lse_of(static_cast<std::uint32_t>(q_head(slot)))[slot.i]);
  }
};

// With tensor cores, for heads of at most 16 kSteps channels. With keys of 256 channels, only 16
// slots at once fit in shared memory.
template <int kSteps>
struct MmaRows {
  static constexpr std::uint32_t kHeld = kSteps == 16 ? 16 : 32;  // slots at a time
  KeyTile<kSteps> keys;

  // Loads the tile from token `first` on. All threads of the block must call it; they all see the
  // tile afterwards.
  __device__ void load(const WindowLaunch& l, std::uint32_t head, std::uint32_t first) {
    keys.load(l, head, first);
  }
  // weights[k][t] of slot `from` + k and token `first` + t. All threads of the block must call it.
  __device__ void fill(const Slots& slots, std::uint32_t from, std::uint32_t first,
                       float (*weights)[kRowsTileTokens + 1]) {
    constexpr std::uint32_t kBlocks = kHeld / 16;  // of rows; a warp takes as many blocks of 8
                                                   // tokens
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::uint32_t row0 = warp % kBlocks * 16, token0 = warp / kBlocks * kBlocks * 8;
    QueryRows<kSteps> queries;
    queries.load(slots.l, [&](std::uint32_t r) {
      const std::uint32_t slot = from + row0 + r;
      return slot < slots.count() ? slots.query(slots.at(slot)) : ~std::uint64_t{0};
    });
    float z[kBlocks][4];
    logits(keys, queries, slots.l.scale, token0, z);
#pragma unroll
    for (std::uint32_t n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t k = row0 + lane / 4 + i / 2 * 8;
        const std::uint32_t t = token0 + n * 8 + lane % 4 * 2 + i % 2;
        weights[k][t] = slots.weight(from + k, first + t, z[n][i]);
      }
    }
    __syncthreads();
  }
};

// In f32, for any dtype and number of channels: loads slices of channels one after another.
struct PlainRows {
  static constexpr std::uint32_t kHeld = 32, kSlice = 32;
  float keys[kRowsTileTokens][kSlice + 1], queries[kHeld][kSlice + 1];

  __device__ void load(const WindowLaunch&, std::uint32_t, std::uint32_t) {}
  __device__ void fill(const Slots& slots, std::uint32_t from, std::uint32_t first,
                       float (*weights)[kRowsTileTokens + 1]) {
    // A thread's products: one token, every kStride-th slot.
    constexpr std::uint32_t kStride = kRowsThreads / kRowsTileTokens, kEach = kHeld / kStride;
    const WindowAttentionDevice& task = slots.l.task;
    const std::uint32_t t = threadIdx.x % kRowsTileTokens, k0 = threadIdx.x / kRowsTileTokens;
    float sums[kEach] = {};
    for (std::uint32_t c0 = 0; c0 < task.head_dim; c0 += kSlice) {
      load_slice(slots, from, first, c0);
      for (std::uint32_t c = 0; c < kSlice; ++c) {
        const float key = keys[t][c];
#pragma unroll
        for (std::uint32_t j = 0; j < kEach; ++j) sums[j] += queries[k0 + j * kStride][c] * key;
      }
      __syncthreads();
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const std::uint32_t k = k0 + j * kStride;
      weights[k][t] = slots.weight(from + k, first + t, sums[j] * slots.l.scale);
    }
    __syncthreads();
  }

 private:
  // Channels from c0 on, zeros beyond the last channel, token and slot.
  __device__ void load_slice(const Slots& slots, std::uint32_t from, std::uint32_t first,
                             std::uint32_t c0) {
    const WindowAttentionDevice& task = slots.l.task;
    for (std::uint32_t i = threadIdx.x; i < kRowsTileTokens * kSlice; i += kRowsThreads) {
      const std::uint32_t t = i / kSlice, c = i % kSlice;
      const bool inside = first + t < task.num_tokens && c0 + c < task.head_dim;
      const std::uint64_t row = std::uint64_t{slots.head} * task.num_tokens + first + t;
      keys[t][c] = inside ? element(task.dtype, task.keys, row * task.head_dim + c0 + c) : 0.0f;
    }
    for (std::uint32_t i = threadIdx.x; i < kHeld * kSlice; i += kRowsThreads) {
      const std::uint32_t k = i / kSlice, c = i % kSlice;
      const bool inside = from + k < slots.count() && c0 + c < task.head_dim;
      queries[k][c] = 0;
      if (!inside) continue;
      const std::uint64_t row = slots.query(slots.at(from + k));
      queries[k][c] = element(task.dtype, task.queries, row * task.head_dim + c0 + c);
    }
    __syncthreads();
  }
};

// Calls fn.operator()<Rows>() with the type that multiplies the task's rows.
template <typename Fn>
Status with_rows(const WindowLaunch& l, const Fn& fn) {
  if (!takes_window_mma(l.task)) return fn.template operator()<PlainRows>();
  return for_steps(l, [&]<int kSteps>() { return fn.template operator()<MmaRows<kSteps>>(); });
}

}  // namespace precis::kernels
