// Memory divided into pages of rows, as an engine's paged KV cache is, and rows on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "precis/remote_region.h"
#include "precis/types.h"

namespace precis {

// Pages of one head's rows each. Element d of row r of page p lies at
// data + p * page_stride_bytes + r * row_stride_bytes + d * dim_stride_bytes. All of a page lies
// within one page stride, and no two elements of it overlap: either whole rows follow each other
// (vLLM's GPU layouts), or whole columns do (K of vLLM's CPU backend, [head_dim, page_rows]).
struct PagedRows {
  std::byte* data = nullptr;
  std::uint64_t num_pages = 0;
  std::uint64_t page_stride_bytes = 0;
  std::uint32_t page_rows = 0;
  std::uint64_t row_stride_bytes = 0, dim_stride_bytes = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
  MemorySpace space = MemorySpace::kHost;
  int device = 0;  // of MemorySpace::kDevice: CUDA's number of it in this process

  std::size_t row_bytes() const { return std::size_t{head_dim} * dtype_size_bytes(dtype); }
  // From the first page's first byte to the last one's last.
  std::uint64_t reach_bytes() const {
    return (num_pages - 1) * page_stride_bytes + (page_rows - 1) * row_stride_bytes +
           (head_dim - 1) * dim_stride_bytes + dtype_size_bytes(dtype);
  }
};

// Rows of one head, [num_rows, head_dim] of keys and as many of values, between an array of bytes
// and pages.
struct PageRun {
  std::uint64_t keys_at = 0;  // where the keys are packed, in bytes from the array's begin
  std::uint64_t values_at = 0;
  std::span<const std::uint32_t> table;  // the pages, in order
  std::uint64_t first_row = 0;           // counted from the first row of the first page
  std::uint64_t num_rows = 0;
};

}  // namespace precis
