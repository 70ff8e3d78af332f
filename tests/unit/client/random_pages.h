// Pages with random strides, with every byte of their memory known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "precis/paged_rows.h"
#include "precis/types.h"

namespace precis::testing {

enum class Order { kRows, kRowsApart, kColumns, kColumnsApart, kElementsApart };

// Memory that holds exactly the pages; every page has the same layout.
struct RandomPages {
  RandomPages(std::mt19937& random, Order order, std::uint64_t num_pages, std::uint32_t page_rows,
              std::uint32_t head_dim, Dtype dtype) {
    const std::uint64_t size = dtype_size_bytes(dtype);
    const bool apart = order == Order::kRowsApart || order == Order::kColumnsApart;
    const std::uint64_t gap = apart ? size * (1 + random() % 5) : 0;
    rows.num_pages = num_pages;
    rows.page_rows = page_rows;
    rows.head_dim = head_dim;
    rows.dtype = dtype;
    const bool by_columns = order == Order::kColumns || order == Order::kColumnsApart;
    rows.dim_stride_bytes = by_columns                       ? page_rows * size + gap
                            : order == Order::kElementsApart ? 3 * size
                                                             : size;
    rows.row_stride_bytes = by_columns ? size : head_dim * rows.dim_stride_bytes + gap;
    rows.page_stride_bytes = reach_bytes() + size * (random() % 7);
    // One byte past the last page would be past the memory, which sanitizers detect.
    memory.resize((num_pages - 1) * rows.page_stride_bytes + reach_bytes());
    for (std::byte& b : memory) b = static_cast<std::byte>(random());
    rows.data = memory.data();
  }
  std::uint64_t reach_bytes() const {
    return (rows.page_rows - 1) * rows.row_stride_bytes +
           (rows.head_dim - 1) * rows.dim_stride_bytes + dtype_size_bytes(rows.dtype);
  }
  // Offset of one element in the memory.
  std::uint64_t at(std::uint64_t page, std::uint64_t row, std::uint64_t d) const {
    return page * rows.page_stride_bytes + row * rows.row_stride_bytes + d * rows.dim_stride_bytes;
  }

  PagedRows rows;
  std::vector<std::byte> memory;
};

// Numbers of different pages.
inline std::vector<std::uint32_t> random_table(std::mt19937& random, std::uint32_t num_pages,
                                               std::size_t size) {
  std::vector<std::uint32_t> table(num_pages);
  std::iota(table.begin(), table.end(), 0u);
  std::shuffle(table.begin(), table.end(), random);
  table.resize(size);
  return table;
}

}  // namespace precis::testing
