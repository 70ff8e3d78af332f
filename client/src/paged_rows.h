// Checks the description of pages, and copies rows to and from pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "precis/paged_rows.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// kInvalidArgument naming the field of `keys` ("pages.keys") or `values` that does not fit the
// model or the other fields. If OK, address arithmetic on the pages cannot overflow.
Status check_paged_rows(const ModelSpec& model, const PagedRows& keys, const PagedRows& values);

// kInvalidArgument naming the first number in `table` that is not a page of both `keys` and
// `values`.
Status check_table(std::span<const std::uint32_t> table, const PagedRows& keys,
                   const PagedRows& values);

// For checked pages in host memory and a checked table with enough rows. `rows` [num_rows,
// head_dim], contiguous; `first_row` counts from the first row of the first page.
void scatter_rows(const std::byte* rows, std::uint64_t first_row, std::uint64_t num_rows,
                  const PagedRows& to, std::span<const std::uint32_t> table);
void gather_rows(const PagedRows& from, std::span<const std::uint32_t> table,
                 std::uint64_t first_row, std::uint64_t num_rows, std::byte* rows);

}  // namespace precis
