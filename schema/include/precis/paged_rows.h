// Memory divided into pages of rows, such as an engine's paged KV cache, and runs of rows to copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "precis/remote_region.h"
#include "precis/types.h"

namespace precis {

// Pages that each hold rows of one head. Element d of row r of page p lies at data + p *
// page_stride_bytes + r * row_stride_bytes + d * dim_stride_bytes. A page fits into one page
// stride, and its elements do not overlap. Either rows are contiguous (vLLM's GPU layouts) or
// columns are (K of vLLM's CPU backend, [head_dim, page_rows]).
struct PagedRows {
  std::byte* data = nullptr;
  std::uint64_t num_pages = 0;
  std::uint64_t page_stride_bytes = 0;
  std::uint32_t page_rows = 0;
  std::uint64_t row_stride_bytes = 0, dim_stride_bytes = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
  MemorySpace space = MemorySpace::kHost;
  int device = 0;  // kDevice: CUDA's number of the device in this process

  std::size_t row_bytes() const { return std::size_t{head_dim} * dtype_size_bytes(dtype); }
  // Bytes from the first byte of the first page to the last byte of the last page.
  std::uint64_t reach_bytes() const {
    return (num_pages - 1) * page_stride_bytes + (page_rows - 1) * row_stride_bytes +
           (head_dim - 1) * dim_stride_bytes + dtype_size_bytes(dtype);
  }
};

// A run of rows of one head to copy between a byte array and pages: [num_rows, head_dim] of keys
// and the same of values.
struct PageRun {
  std::uint64_t keys_at = 0;  // offset of the packed keys in the array, in bytes
  std::uint64_t values_at = 0;
  std::span<const std::uint32_t> table;  // the pages, in order
  std::uint64_t first_row = 0;           // counted from the first row of the first page
  std::uint64_t num_rows = 0;
};

}  // namespace precis
