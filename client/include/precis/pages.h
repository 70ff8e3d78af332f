// Paged memory of the caller's, as an engine's paged KV cache is: gets leave rows in it, puts take
// rows from it. Part of client.h, which includes it.
#pragma once

#include <cstdint>
#include <span>

#include "precis/paged_rows.h"

namespace precis {

// Pages (paged_rows.h) lie in host memory, or in that of one CUDA device, K and V in the same. On a
// device the rows of a layer cross the bus in one copy and are moved by one kernel, on a stream of
// the client's own, which has ended when the call returns. It waits for no other stream: work of
// the caller's own on the pages must have ended when the call begins. The client keeps device
// memory for the rows of one layer each way. kUnsupported: a build without CUDA, or a machine
// without the device; kInvalidArgument: memory that is not of the device; kOutOfSpace: no room
// there for the rows. Only an emulator has run this part yet, no GPU.

// Where a get leaves rows: those of (layer l, KV head h), in the order of Prefix::head(), go to
// rows 0 to page_rows - 1 of the page of `keys` and of `values` that
// table[starts[l * num_kv_heads + h]] names, then to those of the next page, and so on up to
// starts[l * num_kv_heads + h + 1]. `starts` has num_layers * num_kv_heads + 1 values that never
// descend, the last is at most table.size(). A page that stands twice in the table holds the rows
// that were written last, on a device any of them.
struct PagesOut {
  PagedRows keys, values;  // of one page_rows
  std::span<const std::uint32_t> table, starts;
};

// Where a push takes the keys and values of one layer from, in place of views of rows: `table`
// [num_heads, pages], and token t of head h is row first_row + t of that head's pages in order.
// Nothing is written to.
struct PagesIn {
  PagedRows keys, values;  // of one page_rows
  std::span<const std::uint32_t> table;
  std::uint32_t num_heads = 0;
  std::uint32_t first_row = 0;
  std::uint32_t num_tokens = 0;
};

}  // namespace precis
