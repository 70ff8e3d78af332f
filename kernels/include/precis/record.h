// Reading and checking head records (schema/include/precis/record_format.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "precis/record_format.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis::kernels {

using Checksum = std::array<std::uint8_t, kChecksumBytes>;

// A record's sections, all `count` long. Views into the record's memory.
struct RecordView {
  SegmentId segment;
  std::uint32_t layer = 0, head = 0, count = 0, head_dim = 0;
  Dtype dtype = Dtype::kF32;
  Encoding encoding = Encoding::kRaw;
  // [checksum_blocks(count)]; in a cut as a get serves it, only those of whole blocks
  std::span<const Checksum> checksums;
  std::span<const std::uint32_t> positions;  // [count] in the original sequence
  std::span<const std::uint32_t> seats;      // [count] ascending, from 1
  std::span<const float> scores;             // [count]
  Bytes keys;                                // [count, entry_form().keys().bytes()]
  Bytes values;                              // [count, entry_form().values().bytes()]

  EntryForm entry_form() const { return {head_dim, dtype, encoding}; }
};

// Opens the record at the front of `bytes`, after checking its header (magic, version, checksum,
// sizes against the count) and its padding. kCorruption or kVersionMismatch names the field.
// `size_bytes` is set to the record's length, so that callers can walk consecutive records. Does
// not read the sections. `bytes` may be untrusted; kInvalidArgument if they are not aligned to 4
// bytes.
Result<RecordView> open_record(Bytes bytes, std::size_t* size_bytes = nullptr);

// Checks every block of the record against record.checksums. If these are only those of whole
// blocks, as in a cut that a get serves, the last, partial block is checked against `tail`.
// kCorruption names layer, head and block.
Status verify_record(const RecordView& record, const Checksum* tail = nullptr);

// The checksum of the last, partial block of the first `count` entries; all zero if count is a
// whole number of blocks. For the record's own last block this is the stored checksum. For any
// other block, the whole block is checked against its stored checksum first, so that damaged bytes
// never get a fresh checksum. kInvalidArgument if the record has fewer entries, kCorruption as
// above.
Result<Checksum> cut_tail_checksum(const RecordView& record, std::uint32_t count);

// The size of the cut at `entries`: the number of entries whose seat is at most that.
std::uint32_t count_at(const RecordView& record, std::uint64_t entries);

// The byte ranges of the record's cut at `count`, in the order of its sections: checksums of whole
// blocks, positions, seats, scores, keys, values. The ranges have no padding, and view the record's
// memory.
std::array<Bytes, 6> cut_ranges(const RecordView& record, std::uint32_t count);

// Writes the record's cut at `count` into `out` as a separate record; `out` is as long as
// RecordLayout::of says. Whole blocks keep their checksums and are not verified; the checksum of
// the last, partial block is cut_tail_checksum(), with its errors.
Status write_cut(const RecordView& record, std::uint32_t count, MutableBytes out);

// Writes header and checksums over sections and zero padding that are already in place; `record` is
// as long as RecordLayout::of says.
void seal_record(MutableBytes record, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
                 const EntryForm& form, const SegmentId& segment);

}  // namespace precis::kernels
