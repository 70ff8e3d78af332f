// The headers of frames: they round-trip, and damaged headers are refused.
#include "precis/frames.h"

#include <catch2/catch.hpp>
#include <vector>

namespace precis {
namespace {

using Catch::Matchers::Contains;

bool same(const FrameHeader& a, const FrameHeader& b) {
  return a.kind == b.kind && a.size_bytes == b.size_bytes && a.after_bulk == b.after_bulk;
}
bool same(const BulkHeader& a, const BulkHeader& b) {
  return a.kind == b.kind && a.size_bytes == b.size_bytes && a.id == b.id && a.region == b.region &&
         a.offset == b.offset;
}

// Copies to a heap block of exact size, so the sanitizer detects reads past the end.
std::vector<std::byte> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

template <typename Header, typename Decode>
void check_every_damage(const Header& header, std::vector<std::byte> bytes, Decode decode) {
  const auto again = decode(bytes);
  REQUIRE(again.status() == Status());
  REQUIRE(same(*again, header));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    REQUIRE(decode(copy(Bytes(bytes).first(size))).status().code() == StatusCode::kInvalidArgument);
  }
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    CAPTURE(bit);
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= mask;
    const auto changed = decode(copy(bytes));
    bytes[bit / 8] ^= mask;
    if (changed.ok()) {
      REQUIRE_FALSE(same(*changed, header));
    } else {
      ++refused;
      REQUIRE(changed.status().code() == StatusCode::kInvalidArgument);
      REQUIRE_FALSE(changed.status().message().empty());
    }
  }
  REQUIRE(refused >= 16);  // bits of the magic
}

TEST_CASE("the header of every kind of control frame round-trips, and no damage passes for it",
          "[unit][schema]") {
  for (auto kind = static_cast<std::uint16_t>(FrameKind::kChallenge);
       kind <= static_cast<std::uint16_t>(FrameKind::kRdma); ++kind) {
    CAPTURE(kind);
    const FrameHeader header{static_cast<FrameKind>(kind), 0xfedcba98, 0x123456789abcdef0};
    check_every_damage(header, copy(encode_frame_header(header)), decode_frame_header);
  }
}

TEST_CASE("the header of every kind of bulk frame round-trips, and no damage passes for it",
          "[unit][schema]") {
  for (auto kind = static_cast<std::uint16_t>(BulkKind::kPull);
       kind <= static_cast<std::uint16_t>(BulkKind::kUnshare); ++kind) {
    CAPTURE(kind);
    const BulkHeader header{static_cast<BulkKind>(kind), 4567, 1ull << 60, 3, ~0ull};
    check_every_damage(header, copy(encode_bulk_header(header)), decode_bulk_header);
    const bool has_data = header.kind == BulkKind::kData || header.kind == BulkKind::kPush;
    CHECK(header.has_data() == has_data);
  }
}

TEST_CASE("a kind that does not exist is named", "[unit][schema]") {
  for (const std::uint16_t kind : {0, 9, 0xffff}) {
    FrameHeader frame;
    frame.kind = static_cast<FrameKind>(kind);
    CHECK_THAT(decode_frame_header(encode_frame_header(frame)).status().message(),
               Contains("frame kind " + std::to_string(kind)));
    BulkHeader bulk;
    bulk.kind = static_cast<BulkKind>(kind);
    CHECK_THAT(decode_bulk_header(encode_bulk_header(bulk)).status().message(),
               Contains("bulk frame kind " + std::to_string(kind)));
  }
}

TEST_CASE("a bulk frame above the limit is refused with both numbers", "[unit][schema]") {
  BulkHeader header{BulkKind::kData, BulkHeader::kDataBytesMax, 1, 1, 0};
  REQUIRE(decode_bulk_header(encode_bulk_header(header)).ok());
  ++header.size_bytes;
  CHECK_THAT(decode_bulk_header(encode_bulk_header(header)).status().message(),
             Contains("8388609") && Contains("8388608"));
}

TEST_CASE("control frames are no bulk frames, nor the other way", "[unit][schema]") {
  std::vector<std::byte> frame = copy(encode_frame_header({}));
  frame.resize(BulkHeader::kBytes);
  CHECK_FALSE(decode_bulk_header(frame).ok());
  CHECK_FALSE(decode_frame_header(Bytes(encode_bulk_header({})).first(FrameHeader::kBytes)).ok());
  const std::string http = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
  const Bytes text = std::as_bytes(std::span(http));
  CHECK_THAT(decode_frame_header(text.first(FrameHeader::kBytes)).status().message(),
             Contains("does not speak Precis"));
  CHECK_FALSE(decode_bulk_header(text.first(BulkHeader::kBytes)).ok());
}

}  // namespace
}  // namespace precis
