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

TEST_CASE("messages that travel together come apart as they were", "[transport]") {
  using Messages = std::vector<std::vector<std::byte>>;
  const std::vector<std::byte> one(5, std::byte{1}), none, three(30'000, std::byte{3}),
      large(70'000, std::byte{4});
  for (const Messages& messages :
       {Messages{one}, Messages{none}, Messages{large}, Messages{three, one, three}}) {
    const auto packed = pack_messages(messages);
    REQUIRE(unpack_messages(packed, messages.size()).ok());
    CHECK((*unpack_messages(packed, messages.size()) == messages));
  }
}

TEST_CASE("bytes that are not the messages they are said to be are refused", "[transport]") {
  const auto packed = pack_messages({{5, std::byte{1}}, {7, std::byte{2}}});
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    CHECK(unpack_messages(packed, count).status().code() == StatusCode::kInvalidArgument);
  }
  for (std::size_t size = 0; size < packed.size(); ++size) {
    CHECK(unpack_messages({packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size)}, 2)
              .status()
              .code() == StatusCode::kInvalidArgument);
  }
  CHECK(unpack_messages({}, 0).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("no more than a sender packs is taken apart", "[transport]") {
  using Messages = std::vector<std::vector<std::byte>>;
  const auto refused = [](const std::vector<std::byte>& packed, std::uint64_t count) {
    return unpack_messages(packed, count).status().code() == StatusCode::kInvalidArgument;
  };
  const std::vector<std::byte> one(1), none, half(kTogetherBytesMax / 2);
  CHECK(unpack_messages(pack_messages({half, half}), 2).ok());
  CHECK(refused(pack_messages({half, half, one}), 3));
  CHECK(unpack_messages(pack_messages(Messages(kTogetherBytesMax, one)), kTogetherBytesMax).ok());
  CHECK(refused(pack_messages(Messages(kTogetherBytesMax + 1, one)), kTogetherBytesMax + 1));
  CHECK(refused(pack_messages({one, none}), 2));
  CHECK(refused(pack_messages({none, one}), 2));
  // Sizes of nothing, as many as there is room for.
  CHECK(refused(std::vector<std::byte>(4u << 20), 1u << 20));
}

TEST_CASE("a region key survives its trip and is refused when cut", "[transport]") {
  const RegionKey key{0x0102030405060708, 9, 10, 11, 12, std::string("\0key", 4)};
  const std::string bytes = encode_region_key(key);
  REQUIRE(decode_region_key(bytes).ok());
  CHECK(*decode_region_key(bytes) == key);
  for (std::size_t size = 0; size < 36; ++size) {
    CHECK(decode_region_key(bytes.substr(0, size)).status().code() == StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace precis
