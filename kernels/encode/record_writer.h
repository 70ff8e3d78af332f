// Writes head records in pieces; seal_record (precis/record.h) is write_header, then checksums.
#pragma once

#include "kernels/compact/compact.h"
#include "kernels/encode/xxh3_op.h"
#include "precis/record.h"

namespace precis::kernels {

// Pointers to the sections of a record; `record` is layout.size long.
Sections sections_of(MutableBytes record, const RecordLayout& layout);
std::span<std::uint32_t> mutable_seats(MutableBytes record, const RecordView& view);

// Zeroes the checksums and the gaps between sections.
void clear_padding(MutableBytes record, const RecordLayout& layout);
void write_header(MutableBytes record, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
                  const EntryForm& form, const SegmentId& segment);
// write_checksum() hashes one block of entries, write_checksums() all blocks, from the sections as
// they are now; `view` is of `record`.
void write_checksum(MutableBytes record, const RecordView& view, std::uint32_t block);
// Stores a checksum that has been computed already.
void store_checksum(MutableBytes record, std::uint32_t block, const xxh3::Hash128& hash);
void write_checksums(MutableBytes record, const RecordView& view);
// A view of a record whose header was just written. Checks nothing.
RecordView written_record(Bytes record);

}  // namespace precis::kernels
