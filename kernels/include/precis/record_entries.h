// Writes new head records from entries of stored ones, when a segment is split or segments are
// merged. No stage of compression runs; entries do not change, except for their seats.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "precis/record.h"

namespace precis::kernels {

// Returns the number of entries of tokens before `position`.
std::uint32_t entries_before(const RecordView& record, std::uint32_t position);

// An entry of one of several records, and its seat in the new record.
struct EntryCopy {
  std::uint32_t record = 0;  // index into the records
  std::uint32_t entry = 0;   // index into that record's entries
  std::uint32_t seat = 0;
};

// Writes the entries, in this order, as a record of `segment` for the records' layer and head. Its
// checksums are zero until seal_record() or renumber_seats(). `records`: at least one, of one
// layer, head and row form; their checksums are not verified. `out` is as long as
// RecordLayout::of says for entries.size(). Seats must ascend.
void write_entries(std::span<const RecordView> records, std::span<const EntryCopy> entries,
                   const SegmentId& segment, MutableBytes out);

// Replaces the seats of a record that write_entries() wrote, and writes its checksums. `seat_of`
// must keep the order of the seats.
void renumber_seats(MutableBytes record,
                    const std::function<std::uint32_t(std::uint32_t seat)>& seat_of);

}  // namespace precis::kernels
