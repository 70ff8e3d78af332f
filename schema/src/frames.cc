#include "precis/frames.h"

#include <algorithm>
#include <string>
#include <vector>

#include "precis/little_endian.h"

namespace precis {
namespace {

constexpr std::uint16_t kFrameMagic = 0x5250;  // "PR"
constexpr std::uint16_t kBulkMagic = 0x4250;   // "PB"

template <std::size_t kSize>
std::array<std::byte, kSize> as_array(const std::vector<std::byte>& bytes) {
  std::array<std::byte, kSize> out{};
  std::copy_n(bytes.begin(), kSize, out.begin());
  return out;
}

}  // namespace

std::array<std::byte, FrameHeader::kBytes> encode_frame_header(const FrameHeader& header) {
  std::vector<std::byte> out;
  out.reserve(FrameHeader::kBytes);
  put_le(out, header.size_bytes);
  put_le(out, static_cast<std::uint16_t>(header.kind));
  put_le(out, kFrameMagic);
  put_le(out, header.after_bulk);
  return as_array<FrameHeader::kBytes>(out);
}

Result<FrameHeader> decode_frame_header(Bytes bytes) {
  LeReader in(bytes);
  FrameHeader header;
  header.size_bytes = in.get<std::uint32_t>();
  const auto kind = in.get<std::uint16_t>();
  const auto magic = in.get<std::uint16_t>();
  header.after_bulk = in.get<std::uint64_t>();
  if (!in.ok() || magic != kFrameMagic) {
    return Status::invalid("the peer does not speak Precis, or another version of it");
  }
  if (kind < static_cast<std::uint16_t>(FrameKind::kChallenge) ||
      kind > static_cast<std::uint16_t>(FrameKind::kRdma)) {
    return Status::invalid("frame kind " + std::to_string(kind) + " does not exist");
  }
  header.kind = static_cast<FrameKind>(kind);
  return header;
}

std::array<std::byte, BulkHeader::kBytes> encode_bulk_header(const BulkHeader& header) {
  std::vector<std::byte> out;
  out.reserve(BulkHeader::kBytes);
  put_le(out, static_cast<std::uint16_t>(header.kind));
  put_le(out, kBulkMagic);
  put_le(out, header.size_bytes);
  put_le(out, header.id);
  put_le(out, header.region);
  put_le(out, header.offset);
  return as_array<BulkHeader::kBytes>(out);
}

Result<BulkHeader> decode_bulk_header(Bytes bytes) {
  LeReader in(bytes);
  BulkHeader header;
  const auto kind = in.get<std::uint16_t>();
  const auto magic = in.get<std::uint16_t>();
  header.size_bytes = in.get<std::uint32_t>();
  header.id = in.get<std::uint64_t>();
  header.region = in.get<std::uint64_t>();
  header.offset = in.get<std::uint64_t>();
  if (!in.ok() || magic != kBulkMagic) return Status::invalid("these are no bulk frames");
  if (kind < static_cast<std::uint16_t>(BulkKind::kPull) ||
      kind > static_cast<std::uint16_t>(BulkKind::kUnshare)) {
    return Status::invalid("bulk frame kind " + std::to_string(kind) + " does not exist");
  }
  header.kind = static_cast<BulkKind>(kind);
  if (header.size_bytes > BulkHeader::kDataBytesMax) {
    return Status::invalid("a bulk frame of " + std::to_string(header.size_bytes) +
                           " B exceeds the limit of " + std::to_string(BulkHeader::kDataBytesMax) +
                           " B");
  }
  return header;
}

}  // namespace precis
