// Attention of the queries of one token over KV heads with different numbers of entries (Ada-KV,
// section 3.5, arXiv:2407.11550). Absent entries take neither time nor memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "precis/status.h"
#include "precis/types.h"

namespace precis::kernels {

// Rows of one KV head, wherever they lie: the kept entries of a served layer, a page, newer
// tokens. keys, values: [count, head_dim], contiguous.
struct RaggedRows {
  std::uint32_t head = 0;
  std::uint32_t count = 0;
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

struct RaggedQuery {
  std::uint32_t num_kv_heads = 0, group = 1;  // query heads per KV head
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;         // of the rows
  std::span<const float> queries;    // [num_kv_heads * group, head_dim], post-RoPE
  float scale = 1;                   // of the products q.k
  std::span<const RaggedRows> rows;  // of any heads, in any order
};

// Computes on the threads of a pool and reads each row once. A result does not depend on the number
// of threads. Thread-safe.
class RaggedAttention {
 public:
  explicit RaggedAttention(unsigned threads = 0);  // 0: every core
  ~RaggedAttention();

  // out [num_kv_heads * group, head_dim]: softmax(scale * q K^T) V over the rows of the query's KV
  // head, in f32; zeros for a head without rows. kInvalidArgument: a shape that does not fit.
  Status attend(const RaggedQuery& query, std::span<float> out) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace precis::kernels
