// Byte format of a head record: the entries of one (layer, KV head) of a segment in retention
// order. Writers and readers share this file; schema/RECORD_FORMAT.md draws the format.
// Little-endian.
//
//   header (128 B) | checksums | positions u32 | seats u32 | scores f32 | K rows | V rows
//
// Every section begins on a 64-byte boundary and is zero-padded to the next. Each block of
// kChecksumBlockEntries entries has one XXH3-128 checksum over its part of all five sections, in
// the order above. A cut of whole blocks is therefore checked with stored checksums alone. If a cut
// ends inside a block, the cutting code first checks the whole block, then computes a new checksum
// of the kept part (kernels/include/precis/record.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "precis/entry_form.h"

namespace precis {

inline constexpr std::uint32_t kRecordMagic = 0x48435250;      // "PRCH"
inline constexpr std::uint16_t kRecordVersion = kFormVersion;  // the latest
inline constexpr std::size_t kSectionAlign = 64;
inline constexpr std::uint32_t kChecksumBlockEntries = 64;
inline constexpr std::size_t kChecksumBytes = 16;

struct RecordHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t dtype;     // Dtype
  std::uint8_t encoding;  // Encoding
  std::uint32_t head_dim;
  std::uint32_t count;  // entries
  std::uint32_t layer;
  std::uint32_t head;
  std::uint64_t checksums_offset;  // all offsets count from the record's first byte
  std::uint64_t positions_offset;
  std::uint64_t seats_offset;
  std::uint64_t scores_offset;
  std::uint64_t keys_offset;
  std::uint64_t values_offset;
  std::uint64_t size_bytes;  // of the record, padding included
  std::uint8_t segment[16];  // SegmentId: detects a record of another segment
  std::uint8_t reserved[24];
  std::uint64_t header_checksum;  // XXH3-64 of the 120 bytes before it
};
static_assert(sizeof(RecordHeader) == 128);

constexpr std::size_t align_section(std::size_t n) {
  return (n + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
}
constexpr std::uint32_t checksum_blocks(std::uint32_t count) {
  return (count + kChecksumBlockEntries - 1) / kChecksumBlockEntries;
}

// Offsets of the sections of a record of `count` entries. They depend only on the count and the
// form, so readers compare the stored offsets with them.
struct RecordLayout {
  std::uint32_t count = 0;
  std::size_t key_bytes = 0, value_bytes = 0;  // of a row
  std::size_t checksums = 0, positions = 0, seats = 0, scores = 0, keys = 0, values = 0, size = 0;

  static constexpr RecordLayout of(std::uint32_t count, const EntryForm& form) {
    RecordLayout l;
    l.count = count;
    l.key_bytes = form.keys().bytes();
    l.value_bytes = form.values().bytes();
    l.checksums = sizeof(RecordHeader);
    l.positions = l.checksums + align_section(std::size_t{checksum_blocks(count)} * kChecksumBytes);
    l.seats = l.positions + align_section(std::size_t{count} * 4);
    l.scores = l.seats + align_section(std::size_t{count} * 4);
    l.keys = l.scores + align_section(std::size_t{count} * 4);
    l.values = l.keys + align_section(count * l.key_bytes);
    l.size = l.values + align_section(count * l.value_bytes);
    return l;
  }
};

// Bytes of one more entry, without padding and checksums. Budgets in bytes are divided by this.
constexpr std::size_t record_entry_bytes(const EntryForm& form) { return 12 + form.bytes(); }

}  // namespace precis
