#include "cachesvc/transport/am_wire.h"

#include <catch2/catch.hpp>
#include <random>

namespace precis {
namespace {

AmHeader sample() {
  AmHeader header;
  header.link_id = 0x1122334455667788;
  header.kind = AmKind::kPushData;
  header.code = StatusCode::kNotFound;
  header.op = 3;
  header.region = 4;
  header.offset = std::uint64_t{5} << 40;
  header.size_bytes = 6;
  return header;
}

TEST_CASE("an active message header survives its trip", "[transport]") {
  const auto bytes = encode_am_header(sample());
  const auto header = decode_am_header(bytes);
  REQUIRE(header.ok());
  CHECK(*header == sample());
  CHECK(am_link_id(bytes) == sample().link_id);
}

TEST_CASE("an active message header of another length is refused", "[transport]") {
  const auto bytes = encode_am_header(sample());
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back(std::byte{0});
  CHECK(decode_am_header(longer).status().code() == StatusCode::kInvalidArgument);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(decode_am_header(Bytes(bytes).first(size)).status().code() ==
          StatusCode::kInvalidArgument);
  }
  CHECK(am_link_id(Bytes(bytes).first(7)) == 0);
}

TEST_CASE("an active message of unknown kind or code is refused", "[transport]") {
  auto bytes = encode_am_header(sample());
  for (const int kind : {0, 11, 255}) {
    bytes[8] = static_cast<std::byte>(kind);
    CHECK(decode_am_header(bytes).status().code() == StatusCode::kInvalidArgument);
  }
  bytes = encode_am_header(sample());
  bytes[12] = static_cast<std::byte>(kStatusCodeMax + 1);
  CHECK(decode_am_header(bytes).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a region key survives its trip and is refused when cut", "[transport]") {
  const RegionKey key{0x0102030405060708, 9, 10, std::string("\0key", 4)};
  const std::string bytes = encode_region_key(key);
  REQUIRE(decode_region_key(bytes).ok());
  CHECK(*decode_region_key(bytes) == key);
  for (std::size_t size = 0; size < 20; ++size) {
    CHECK(decode_region_key(bytes.substr(0, size)).status().code() == StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace precis
