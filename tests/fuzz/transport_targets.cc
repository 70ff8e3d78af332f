// The bytes that two processes exchange in addition to control messages.
#include <algorithm>

#include "precis/frames.h"
#include "precis/greeting.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

using testing::RandomMessages;

template <typename Array>
std::vector<std::byte> as_vector(const Array& bytes) {
  return {bytes.begin(), bytes.end()};
}

// ---- headers of frames

// Checks that every bit of a header has a meaning: an accepted header encodes to the same bytes.
bool run_frame_header(Bytes input) {
  const auto header = decode_frame_header(input);
  if (!header.ok()) return refused(header.status());
  PRECIS_CHECK(std::ranges::equal(encode_frame_header(*header), input.first(FrameHeader::kBytes)));
  return true;
}

bool run_bulk_header(Bytes input) {
  const auto header = decode_bulk_header(input);
  if (!header.ok()) return refused(header.status());
  PRECIS_CHECK(header->size_bytes <= BulkHeader::kDataBytesMax);
  PRECIS_CHECK(std::ranges::equal(encode_bulk_header(*header), input.first(BulkHeader::kBytes)));
  return true;
}

Inputs frame_header_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (auto kind = static_cast<std::uint16_t>(FrameKind::kChallenge);
       kind <= static_cast<std::uint16_t>(FrameKind::kMessage); ++kind) {
    inputs.push_back(as_vector(encode_frame_header({static_cast<FrameKind>(kind), 100, seed})));
  }
  return inputs;
}

Inputs bulk_header_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (auto kind = static_cast<std::uint16_t>(BulkKind::kPull);
       kind <= static_cast<std::uint16_t>(BulkKind::kUnshare); ++kind) {
    inputs.push_back(
        as_vector(encode_bulk_header({static_cast<BulkKind>(kind), 4096, seed, 2, 3})));
  }
  return inputs;
}

// ---- greetings

template <auto kDecode>
bool run_greeting(Bytes input) {
  return check_stable(kDecode(input), kDecode);
}

// Reads the single frame of a peer that is not yet admitted, by the frame's header.
bool run_stranger(Bytes input) {
  const auto header = decode_frame_header(input);
  if (!header.ok()) return refused(header.status());
  const Bytes body = input.subspan(FrameHeader::kBytes);
  if (header->kind == FrameKind::kHello) return run_greeting<decode_hello>(body);
  return header->kind == FrameKind::kBind && run_greeting<decode_bind>(body);
}

std::vector<std::byte> frame(FrameKind kind, const std::vector<std::byte>& body) {
  auto bytes = as_vector(encode_frame_header({kind, static_cast<std::uint32_t>(body.size()), 0}));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

Inputs stranger_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  return {frame(FrameKind::kHello, encode(random.hello())),
          frame(FrameKind::kBind, encode(random.bind()))};
}

// ---- turns of RDMA

// The three turns that join an RDMA connection: the client's end, the server's end or none, and the
// client's window.
Inputs rdma_turn_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  return {encode(random.rdma_turn(false)), encode(RdmaTurn()), encode(random.rdma_turn(true))};
}

constexpr Target kTargets[] = {
    {"decode_frame_header", run_frame_header, frame_header_seeds},
    {"decode_bulk_header", run_bulk_header, bulk_header_seeds},
    {"read_stranger", run_stranger, stranger_seeds},
    {"decode_challenge", run_greeting<decode_challenge>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).challenge())}; }},
    {"decode_hello", run_greeting<decode_hello>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).hello())}; }},
    {"decode_welcome", run_greeting<decode_welcome>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).welcome())}; }},
    {"decode_bind", run_greeting<decode_bind>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).bind())}; }},
    {"decode_rdma_turn", run_greeting<decode_rdma_turn>, rdma_turn_seeds},
};

}  // namespace

std::span<const Target> transport_targets() { return kTargets; }

}  // namespace precis::fuzz
