// The arithmetic of pages: whether they are what they are said to be, and copying rows to them and
// from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "precis/paged_rows.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// kInvalidArgument naming what of `keys` ("pages.keys") or `values` does not fit the model or
// reaches past its memory. Of OK ones every number that a place is computed from is small enough.
Status check_paged_rows(const ModelSpec& model, const PagedRows& keys, const PagedRows& values);

// kInvalidArgument naming the first number in `table` that is no page of both.
Status check_table(std::span<const std::uint32_t> table, const PagedRows& keys,
                   const PagedRows& values);

// Of checked pages in host memory and a checked table whose rows suffice. `rows` [num_rows,
// head_dim], contiguous; `first_row` counts from the first page's.
void scatter_rows(const std::byte* rows, std::uint64_t first_row, std::uint64_t num_rows,
                  const PagedRows& to, std::span<const std::uint32_t> table);
void gather_rows(const PagedRows& from, std::span<const std::uint32_t> table,
                 std::uint64_t first_row, std::uint64_t num_rows, std::byte* rows);

}  // namespace precis
