#include "precis/record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/encode/block_hash.h"
#include "kernels/encode/record_writer.h"
#include "precis/limits.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace precis::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian in memory");

constexpr std::size_t kHeaderHashedBytes = offsetof(RecordHeader, header_checksum);

std::string text(std::uint64_t value) { return std::to_string(value); }

template <typename T>
std::span<const T> section(Bytes record, std::size_t offset, std::size_t count) {
  return {reinterpret_cast<const T*>(record.data() + offset), count};
}

EntryForm form_of(const RecordHeader& header) {
  return {header.head_dim, static_cast<Dtype>(header.dtype),
          static_cast<Encoding>(header.encoding)};
}

RecordView view_of(Bytes record, const RecordHeader& header, const RecordLayout& layout) {
  RecordView view;
  std::copy(std::begin(header.segment), std::end(header.segment), view.segment.bytes.begin());
  view.layer = header.layer;
  view.head = header.head;
  view.count = header.count;
  view.head_dim = header.head_dim;
  view.dtype = static_cast<Dtype>(header.dtype);
  view.encoding = static_cast<Encoding>(header.encoding);
  view.checksums = section<Checksum>(record, layout.checksums, checksum_blocks(header.count));
  view.positions = section<std::uint32_t>(record, layout.positions, header.count);
  view.seats = section<std::uint32_t>(record, layout.seats, header.count);
  view.scores = section<float>(record, layout.scores, header.count);
  view.keys = record.subspan(layout.keys, header.count * layout.key_bytes);
  view.values = record.subspan(layout.values, header.count * layout.value_bytes);
  return view;
}

// The gaps between sections: {first byte, one past the last}.
std::array<std::array<std::size_t, 2>, 6> paddings(const RecordLayout& l) {
  const std::size_t words = std::size_t{l.count} * 4;
  return {{{l.checksums + checksum_blocks(l.count) * kChecksumBytes, l.positions},
           {l.positions + words, l.seats},
           {l.seats + words, l.scores},
           {l.scores + words, l.keys},
           {l.keys + l.count * l.key_bytes, l.values},
           {l.values + l.count * l.value_bytes, l.size}}};
}

Status damaged(const RecordView& record, std::uint32_t block, std::string_view what) {
  return Status::corruption("record of layer " + text(record.layer) + ", head " +
                            text(record.head) + ", block " + text(block) + " of " +
                            text(checksum_blocks(record.count)) + ": " + std::string(what));
}

Status bad_field(std::string_view field, std::uint64_t value, std::uint64_t expected) {
  return Status::corruption("record header: " + std::string(field) + " is " + text(value) +
                            ", expected " + text(expected));
}

Status above(std::string_view field, std::uint64_t value, std::uint64_t limit) {
  return Status::corruption("record header: " + std::string(field) + " is " + text(value) +
                            ", the limit is " + text(limit));
}

// Checks the fields with bounded or fixed values, in their order. Afterwards the layout cannot
// overflow.
Status check_fields(const RecordHeader& h) {
  if (h.magic != kRecordMagic) return bad_field("magic", h.magic, kRecordMagic);
  if (h.version == 0 || h.version > kRecordVersion) {
    return Status::version("record version " + text(h.version) + "; this build reads 1 to " +
                           text(kRecordVersion));
  }
  const std::uint64_t sum = XXH3_64bits(&h, kHeaderHashedBytes);
  if (h.header_checksum != sum) return Status::corruption("record header: checksum does not match");
  if (const Status dtype = check_dtype(static_cast<Dtype>(h.dtype)); !dtype.ok()) {
    return Status::corruption("record header: " + dtype.message());
  }
  if (h.encoding > static_cast<std::uint8_t>(kEncodings.back())) {
    return Status::corruption("record header: encoding " + text(h.encoding) + " is unknown");
  }
  const std::uint16_t version = form_of(h).version();
  if (h.version != version) return bad_field("version", h.version, version);
  if (const Status form = form_of(h).validate(); !form.ok()) {
    return Status::corruption("record header: " + form.message());
  }
  if (h.count > limits::kPathTokensMax) return above("count", h.count, limits::kPathTokensMax);
  if (h.layer >= limits::kLayersMax) return above("layer", h.layer, limits::kLayersMax - 1);
  if (h.head >= limits::kKvHeadsMax) return above("head", h.head, limits::kKvHeadsMax - 1);
  if (std::any_of(std::begin(h.reserved), std::end(h.reserved), [](auto b) { return b != 0; })) {
    return Status::corruption("record header: reserved bytes are not zero");
  }
  return {};
}

Status check_offsets(const RecordHeader& h, const RecordLayout& l) {
  if (h.checksums_offset != l.checksums) {
    return bad_field("checksums_offset", h.checksums_offset, l.checksums);
  }
  if (h.positions_offset != l.positions) {
    return bad_field("positions_offset", h.positions_offset, l.positions);
  }
  if (h.seats_offset != l.seats) return bad_field("seats_offset", h.seats_offset, l.seats);
  if (h.scores_offset != l.scores) return bad_field("scores_offset", h.scores_offset, l.scores);
  if (h.keys_offset != l.keys) return bad_field("keys_offset", h.keys_offset, l.keys);
  if (h.values_offset != l.values) return bad_field("values_offset", h.values_offset, l.values);
  if (h.size_bytes != l.size) return bad_field("size_bytes", h.size_bytes, l.size);
  return {};
}

}  // namespace

Result<RecordView> open_record(Bytes bytes, std::size_t* size_bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint32_t) != 0) {
    return Status::invalid("a record must lie at a multiple of 4 bytes");
  }
  RecordHeader header;
  if (bytes.size() < sizeof header) {
    return Status::corruption("record of " + text(bytes.size()) +
                              " B is shorter than its header of " + text(sizeof header) + " B");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  PRECIS_TRY(check_fields(header));
  const auto layout = RecordLayout::of(header.count, form_of(header));
  PRECIS_TRY(check_offsets(header, layout));
  if (bytes.size() < layout.size) {
    return Status::corruption("record of layer " + text(header.layer) + ", head " +
                              text(header.head) + ": " + text(layout.size) + " B announced, " +
                              text(bytes.size()) + " B present");
  }
  for (const auto& [first, last] : paddings(layout)) {
    for (std::size_t i = first; i < last; ++i) {
      if (bytes[i] == std::byte{0}) continue;
      return Status::corruption("record of layer " + text(header.layer) + ", head " +
                                text(header.head) + ": padding byte " + text(i) + " is not zero");
    }
  }
  if (size_bytes != nullptr) *size_bytes = layout.size;
  return view_of(bytes, header, layout);
}

Status verify_record(const RecordView& record, const Checksum* tail) {
  const std::uint32_t blocks = checksum_blocks(record.count);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const bool stored = block < record.checksums.size();
    if (!stored && (tail == nullptr || block + 1 != blocks)) {
      return damaged(record, block, "has no checksum");
    }
    const Checksum& expected = stored ? record.checksums[block] : *tail;
    if (hash_block(record, block) != expected)
      return damaged(record, block, "checksum does not match");
  }
  return {};
}

Result<Checksum> cut_tail_checksum(const RecordView& record, std::uint32_t count) {
  if (count > record.count) {
    return Status::invalid("record of layer " + text(record.layer) + ", head " + text(record.head) +
                           ": a cut of " + text(count) + " entries of " + text(record.count));
  }
  const std::uint32_t block = count / kChecksumBlockEntries;
  if (count % kChecksumBlockEntries == 0) return Checksum{};
  if (block >= record.checksums.size()) return damaged(record, block, "has no checksum");
  if (count == record.count) return record.checksums[block];  // the record's own last block
  if (hash_block(record, block) != record.checksums[block]) {
    return damaged(record, block, "checksum does not match");
  }
  return hash_entries(record, block * kChecksumBlockEntries, count);
}

std::uint32_t count_at(const RecordView& record, std::uint64_t entries) {
  const auto end = std::upper_bound(record.seats.begin(), record.seats.end(), entries);
  return static_cast<std::uint32_t>(end - record.seats.begin());
}

std::array<Bytes, 6> cut_ranges(const RecordView& record, std::uint32_t count) {
  PRECIS_CHECK(count <= record.count);
  const EntryForm form = record.entry_form();
  return {std::as_bytes(record.checksums.first(count / kChecksumBlockEntries)),
          std::as_bytes(record.positions.first(count)),
          std::as_bytes(record.seats.first(count)),
          std::as_bytes(record.scores.first(count)),
          record.keys.first(count * form.keys().bytes()),
          record.values.first(count * form.values().bytes())};
}

Sections sections_of(MutableBytes record, const RecordLayout& layout) {
  PRECIS_CHECK(record.size() == layout.size);
  std::byte* base = record.data();
  return {reinterpret_cast<std::uint32_t*>(base + layout.positions),
          reinterpret_cast<std::uint32_t*>(base + layout.seats),
          reinterpret_cast<float*>(base + layout.scores), base + layout.keys, base + layout.values};
}

std::span<std::uint32_t> mutable_seats(MutableBytes record, const RecordView& view) {
  const auto layout = RecordLayout::of(view.count, view.entry_form());
  return {sections_of(record, layout).seats, view.count};
}

void clear_padding(MutableBytes record, const RecordLayout& layout) {
  std::fill_n(record.begin() + layout.checksums, checksum_blocks(layout.count) * kChecksumBytes,
              std::byte{0});
  for (const auto& [first, last] : paddings(layout)) {
    std::fill(record.begin() + first, record.begin() + last, std::byte{0});
  }
}

void write_header(MutableBytes record, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
                  const EntryForm& form, const SegmentId& segment) {
  const auto layout = RecordLayout::of(count, form);
  PRECIS_CHECK(record.size() == layout.size);
  RecordHeader header = {};
  header.magic = kRecordMagic;
  header.version = form.version();
  header.dtype = static_cast<std::uint8_t>(form.dtype);
  header.encoding = static_cast<std::uint8_t>(form.encoding);
  header.head_dim = form.head_dim;
  header.count = count;
  header.layer = layer;
  header.head = head;
  header.checksums_offset = layout.checksums;
  header.positions_offset = layout.positions;
  header.seats_offset = layout.seats;
  header.scores_offset = layout.scores;
  header.keys_offset = layout.keys;
  header.values_offset = layout.values;
  header.size_bytes = layout.size;
  std::copy(segment.bytes.begin(), segment.bytes.end(), header.segment);
  header.header_checksum = XXH3_64bits(&header, kHeaderHashedBytes);
  std::memcpy(record.data(), &header, sizeof header);
}

void write_checksum(MutableBytes record, const RecordView& view, std::uint32_t block) {
  const auto layout = RecordLayout::of(view.count, view.entry_form());
  PRECIS_CHECK(record.size() == layout.size && block < checksum_blocks(view.count));
  const Checksum checksum = hash_block(view, block);
  std::memcpy(record.data() + layout.checksums + block * kChecksumBytes, checksum.data(),
              kChecksumBytes);
}

void store_checksum(MutableBytes record, std::uint32_t block, const xxh3::Hash128& hash) {
  const Checksum checksum = checksum_of(hash);
  constexpr std::size_t kChecksums = RecordLayout::of(0, EntryForm{1}).checksums;
  std::memcpy(record.data() + kChecksums + block * kChecksumBytes, checksum.data(), kChecksumBytes);
}

void write_checksums(MutableBytes record, const RecordView& view) {
  for (std::uint32_t block = 0; block < checksum_blocks(view.count); ++block) {
    write_checksum(record, view, block);
  }
}

RecordView written_record(Bytes record) {
  RecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  return view_of(record, header, RecordLayout::of(header.count, form_of(header)));
}

Status write_cut(const RecordView& record, std::uint32_t count, MutableBytes out) {
  PRECIS_ASSIGN(const Checksum tail, cut_tail_checksum(record, count));
  const auto layout = RecordLayout::of(count, record.entry_form());
  write_header(out, record.layer, record.head, count, record.entry_form(), record.segment);
  clear_padding(out, layout);
  const std::array<std::size_t, 6> begins = {layout.checksums, layout.positions, layout.seats,
                                             layout.scores,    layout.keys,      layout.values};
  const std::array<Bytes, 6> sections = cut_ranges(record, count);
  for (std::size_t s = 0; s < sections.size(); ++s) {
    std::ranges::copy(sections[s], out.begin() + begins[s]);
  }
  if (count % kChecksumBlockEntries != 0) {
    std::ranges::copy(std::as_bytes(std::span(tail)),
                      out.begin() + layout.checksums + sections[0].size());
  }
  return {};
}

void seal_record(MutableBytes record, std::uint32_t layer, std::uint32_t head, std::uint32_t count,
                 const EntryForm& form, const SegmentId& segment) {
  write_header(record, layer, head, count, form, segment);
  write_checksums(record, written_record(record));
}

}  // namespace precis::kernels
