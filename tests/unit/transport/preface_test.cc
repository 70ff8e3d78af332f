#include "cachesvc/transport/preface.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "cachesvc/transport/preface_io.h"

namespace precis::preface {
namespace {

Introduction sample() {
  Introduction introduction;
  introduction.link_id = 77;
  introduction.host.fill(std::byte{7});
  introduction.pid = 4242;
  introduction.challenge_address = 0x7f0011223344;
  introduction.challenge.fill(std::byte{9});
  introduction.worker_address.assign(300, std::byte{1});
  introduction.payload.assign(100, std::byte{2});
  return introduction;
}

std::vector<std::byte> sample_frame() {
  return encode_frame(Kind::kHello, encode_introduction(sample()));
}

Status parse(Bytes frame) {
  const auto header = parse_header(frame.first(std::min(frame.size(), kHeaderBytes)));
  if (!header.ok()) return header.status();
  const Bytes body = frame.subspan(kHeaderBytes);
  PRECIS_TRY(check_body(*header, body));
  return decode_introduction(body).status();
}

TEST_CASE("a preface frame survives its trip", "[transport]") {
  const auto frame = sample_frame();
  const auto header = parse_header(Bytes(frame).first(kHeaderBytes));
  REQUIRE(header.ok());
  CHECK(header->kind == Kind::kHello);
  CHECK(header->body_bytes == frame.size() - kHeaderBytes);
  CHECK(check_body(*header, Bytes(frame).subspan(kHeaderBytes)).ok());
  const auto introduction = decode_introduction(Bytes(frame).subspan(kHeaderBytes));
  REQUIRE(introduction.ok());
  CHECK(*introduction == sample());
}

TEST_CASE("terms survive their trip, and what is none is refused", "[transport]") {
  for (const Terms terms : {Terms{}, Terms{true, false}, Terms{false, true}}) {
    CHECK(decode_terms(encode_terms(terms)).value() == terms);
  }
  for (const char* none : {"", "\1", "\1\1\1", "\2\1", "\1\2"}) {
    CHECK(decode_terms(std::as_bytes(std::span(none, std::strlen(none)))).status().code() ==
          StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a cut preface frame is refused at every length", "[transport]") {
  const auto frame = sample_frame();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    CHECK_FALSE(parse(Bytes(frame).first(size)).ok());
  }
}

TEST_CASE("a preface frame with any bit flipped is refused", "[transport]") {
  const auto frame = sample_frame();
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    auto flipped = frame;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const bool kind_field = bit / 8 >= 12 && bit / 8 < 16;      // another kind is another frame
    const bool reserved_field = bit / 8 >= 20 && bit / 8 < 24;  // not read
    if (kind_field || reserved_field) continue;
    CAPTURE(bit);
    CHECK_FALSE(parse(flipped).ok());
  }
}

TEST_CASE("another preface version is a version mismatch, unless it reports an error",
          "[transport]") {
  auto frame = sample_frame();
  frame[8] = std::byte{9};
  CHECK(parse(frame).code() == StatusCode::kVersionMismatch);
  auto error = encode_frame(Kind::kError, encode_error(Status::version("speak 9")));
  error[8] = std::byte{9};
  CHECK(parse_header(Bytes(error).first(kHeaderBytes)).ok());
}

TEST_CASE("an oversize preface frame is refused by its header alone", "[transport]") {
  auto frame = encode_frame(Kind::kHello, {});
  const auto size = static_cast<std::uint32_t>(kBodyBytesMax + 1);
  for (std::size_t i = 0; i < 4; ++i) frame[16 + i] = static_cast<std::byte>(size >> (8 * i));
  CHECK(parse(frame).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("an oversize greeting or worker address is refused", "[transport]") {
  auto introduction = sample();
  introduction.payload.resize(limits::kHelloBytesMax + 1);
  CHECK(decode_introduction(encode_introduction(introduction)).status().code() ==
        StatusCode::kInvalidArgument);
  introduction = sample();
  introduction.worker_address.resize(kWorkerAddressBytesMax + 1);
  CHECK(decode_introduction(encode_introduction(introduction)).status().code() ==
        StatusCode::kInvalidArgument);
  introduction.worker_address.clear();
  CHECK_FALSE(decode_introduction(encode_introduction(introduction)).ok());
}

TEST_CASE("random bytes are no introduction and no error worth trusting", "[transport]") {
  const std::uint64_t seed = 99;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    static_cast<void>(decode_introduction(bytes));  // must return, whatever it says
    CHECK_FALSE(decode_error(bytes).ok());
  }
}

TEST_CASE("an error crosses the preface with its code and words", "[transport]") {
  const Status status = decode_error(encode_error(Status::rejected("full")));
  CHECK(status.code() == StatusCode::kRejected);
  CHECK_THAT(status.message(), Catch::Contains("full"));
}

TEST_CASE("only addresses of this machine alone are loopback", "[transport]") {
  for (const char* address : {"127.0.0.1:0", "127.8.9.1:7470", "[::1]:1", "localhost:7470"}) {
    CHECK(is_loopback(address));
  }
  for (const char* address :
       {"0.0.0.0:0", "10.0.0.1:7470", "[::]:1", "host:7470", "127.0.0.1", "127.0.0.1:99999",
        "127.0.0.1:-1", "", "::1:7470", "http://127.0.0.1:1"}) {
    CHECK_FALSE(is_loopback(address));
  }
}

}  // namespace
}  // namespace precis::preface
