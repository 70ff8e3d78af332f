// The caller's paged memory, such as an engine's paged KV cache: gets write rows to it, puts read
// rows from it. Part of client.h, which includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "precis/paged_rows.h"
#include "precis/status.h"

namespace precis {

class PageMover;
// Makes the mover of rows to and from pages on CUDA device `device`. The client calls it once per
// device, at the first get or put with pages there. kUnsupported if there is no such device.
using MakePageMover = Result<std::shared_ptr<PageMover>> (*)(int device);

// Pages (paged_rows.h) are in host memory or in the memory of one CUDA device; K and V are in the
// same memory. The client itself does not use CUDA: a program with pages on a device sets
// page_mover in ConnectOptions or OpenOptions. On a device, a layer's rows cross the bus in one
// copy, and one kernel moves them, on the client's own stream, which is idle again when the call
// returns. That stream does not wait for other streams: the caller's work on the pages must have
// ended before the call. The client keeps device memory for the rows of one layer per direction.
// kUnsupported: a build without CUDA, or a machine without the device; kInvalidArgument: memory
// that is not the device's; kOutOfSpace: the device has no room for the rows.

// The destination of a get's rows. The rows of (layer l, KV head h), in the order of
// Prefix::head(), go to rows 0 to page_rows - 1 of the page of `keys` and of `values` that
// table[starts[l * num_kv_heads + h]] names, then to the next page, up to starts[l * num_kv_heads +
// h + 1]. `starts` has num_layers * num_kv_heads + 1 values that never descend; the last is at most
// table.size(). If a page is in the table twice, it holds the rows that were written last; on a
// device, either rows.
struct PagesOut {
  PagedRows keys, values;  // with the same page_rows
  std::span<const std::uint32_t> table, starts;
};

// The source of a push's keys and values of one layer, instead of views: `table` [num_heads,
// pages]; token t of head h is row first_row + t of that head's pages in order. The pages are only
// read.
struct PagesIn {
  PagedRows keys, values;  // with the same page_rows
  std::span<const std::uint32_t> table;
  std::uint32_t num_heads = 0;
  std::uint32_t first_row = 0;
  std::uint32_t num_tokens = 0;
};

}  // namespace precis
