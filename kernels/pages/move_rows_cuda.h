// Moves rows between a packed array and pages, both on the device: keys and values of any number of
// heads in one launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "precis/status.h"

namespace precis::kernels {

// Pages of keys, or of values. A row is moved in pieces of `piece_bytes` (1, 2, 4, 8 or 16), which
// divides the row, every address and every stride; the pieces of a row are `piece_stride` bytes
// apart.
struct PagePlaces {
  std::byte* data;
  std::uint64_t page_stride, row_stride, piece_stride;
  std::uint32_t row_pieces, piece_bytes;
};

// A run of one head's rows.
struct MovedRun {
  std::uint64_t keys_at, values_at;  // byte offsets in `packed`
  std::uint32_t table_begin;         // the first row's page is table[table_begin]
  std::uint32_t first_row;           // within that page
  std::uint32_t num_rows;
};

struct MoveRows {
  PagePlaces keys, values;
  std::uint32_t page_rows;
  std::byte* packed;
  const MovedRun* runs;  // [num_runs]
  const std::uint32_t* table;
  std::uint32_t num_runs, rows_max;  // rows_max: the most rows of a run
};

Status launch_scatter(const MoveRows& task, const Stream& stream);  // packed -> pages
Status launch_gather(const MoveRows& task, const Stream& stream);   // pages -> packed

}  // namespace precis::kernels
