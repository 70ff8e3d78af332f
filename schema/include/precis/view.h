// Non-owning views: pointer, extents, strides. Pass them by value; const applies to the element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "precis/types.h"

namespace precis {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// K or V of some heads of one layer. data: [num_heads, num_tokens, head_dim] of `dtype` in host
// memory. The rows (head_dim elements) of a head are contiguous, without gaps between rows; heads
// may have gaps between them (a slice of a larger array).
struct HeadsView {
  const std::byte* data = nullptr;
  std::uint32_t num_heads = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
  std::size_t head_stride_bytes = 0;

  bool empty() const { return data == nullptr; }
  std::size_t row_bytes() const { return std::size_t{head_dim} * dtype_size_bytes(dtype); }
  std::size_t head_bytes() const { return row_bytes() * num_tokens; }
  std::size_t size_bytes() const { return head_bytes() * num_heads; }
  bool contiguous() const { return num_heads <= 1 || head_stride_bytes == head_bytes(); }
  const std::byte* head(std::uint32_t h) const { return data + h * head_stride_bytes; }
  const std::byte* row(std::uint32_t h, std::uint32_t token) const {
    return head(h) + token * row_bytes();
  }

  static HeadsView packed(const void* data, std::uint32_t num_heads, std::uint32_t num_tokens,
                          std::uint32_t head_dim, Dtype dtype) {
    HeadsView v{static_cast<const std::byte*>(data), num_heads, num_tokens, head_dim, dtype, 0};
    v.head_stride_bytes = v.head_bytes();
    return v;
  }
};

}  // namespace precis
