#include "precis/frames.h"

#include <bit>
#include <cstring>
#include <string>

namespace precis {
namespace {

constexpr std::uint16_t kFrameMagic = 0x5250;  // "PR"
constexpr std::uint16_t kBulkMagic = 0x4250;   // "PB"

// The headers in their wire layout.
struct RawFrame {
  std::uint32_t size_bytes;
  std::uint16_t kind, magic;
  std::uint64_t after_bulk;
};
struct RawBulk {
  std::uint16_t kind, magic;
  std::uint32_t size_bytes;
  std::uint64_t id, region, offset;
};
static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

// False if `bytes` is too short or has another magic.
template <typename Raw>
bool read(Bytes bytes, std::uint16_t magic, Raw& raw) {
  if (bytes.size() < sizeof raw) return false;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  return raw.magic == magic;
}

template <typename Kind>
bool lies_in(std::uint16_t kind, Kind first, Kind last) {
  return kind >= static_cast<std::uint16_t>(first) && kind <= static_cast<std::uint16_t>(last);
}

}  // namespace

std::array<std::byte, FrameHeader::kBytes> encode_frame_header(const FrameHeader& header) {
  return std::bit_cast<std::array<std::byte, FrameHeader::kBytes>>(RawFrame{
      header.size_bytes, static_cast<std::uint16_t>(header.kind), kFrameMagic, header.after_bulk});
}

Result<FrameHeader> decode_frame_header(Bytes bytes) {
  RawFrame raw;
  if (!read(bytes, kFrameMagic, raw)) {
    return Status::invalid("the peer does not speak Precis, or speaks another version of it");
  }
  if (!lies_in(raw.kind, FrameKind::kChallenge, FrameKind::kRdma)) {
    return Status::invalid("frame kind " + std::to_string(raw.kind) + " does not exist");
  }
  return FrameHeader{static_cast<FrameKind>(raw.kind), raw.size_bytes, raw.after_bulk};
}

std::array<std::byte, BulkHeader::kBytes> encode_bulk_header(const BulkHeader& header) {
  return std::bit_cast<std::array<std::byte, BulkHeader::kBytes>>(
      RawBulk{static_cast<std::uint16_t>(header.kind), kBulkMagic, header.size_bytes, header.id,
              header.region, header.offset});
}

Result<BulkHeader> decode_bulk_header(Bytes bytes) {
  RawBulk raw;
  if (!read(bytes, kBulkMagic, raw)) return Status::invalid("these bytes are not a bulk frame");
  if (!lies_in(raw.kind, BulkKind::kPull, BulkKind::kUnshare)) {
    return Status::invalid("bulk frame kind " + std::to_string(raw.kind) + " does not exist");
  }
  if (raw.size_bytes > BulkHeader::kDataBytesMax) {
    return Status::invalid("a bulk frame of " + std::to_string(raw.size_bytes) +
                           " B exceeds the limit of " + std::to_string(BulkHeader::kDataBytesMax) +
                           " B");
  }
  return BulkHeader{static_cast<BulkKind>(raw.kind), raw.size_bytes, raw.id, raw.region,
                    raw.offset};
}

}  // namespace precis
