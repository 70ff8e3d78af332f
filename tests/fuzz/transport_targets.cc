// What two transports say to each other before and beside control messages.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/host_copy.h"
#include "cachesvc/transport/little_endian.h"
#include "cachesvc/transport/preface.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

using preface::Kind;
using testing::RandomMessages;

// ---- the preface

bool run_introduction(Bytes input) {
  const auto introduction = preface::decode_introduction(input);
  if (!introduction.ok()) return refused(introduction.status());
  const auto bytes = preface::encode_introduction(*introduction);
  PRECIS_CHECK(*preface::decode_introduction(bytes) == *introduction);
  return true;
}

bool run_frame(Bytes input) {
  const Bytes head = input.first(std::min(input.size(), preface::kHeaderBytes));
  const Bytes body = input.subspan(head.size());
  const auto header = preface::parse_header(head);
  if (!header.ok()) return refused(header.status());
  if (const Status body_is = preface::check_body(*header, body); !body_is.ok()) {
    return refused(body_is);
  }
  if (!body.empty()) PRECIS_CHECK(!preface::check_body(*header, with_a_flipped_bit(body)).ok());
  PRECIS_CHECK(!preface::check_body(*header, input).ok());  // of another length
  switch (header->kind) {
    case Kind::kHello:
    case Kind::kWelcome: return run_introduction(body);
    case Kind::kRefusal:
    case Kind::kReady: return true;
    case Kind::kError: return !refused(preface::decode_error(body));
    case Kind::kStart: {
      const auto terms = preface::decode_terms(body);
      if (!terms.ok()) return refused(terms.status());
      PRECIS_CHECK(std::ranges::equal(preface::encode_terms(*terms), body));
      return true;
    }
  }
  return false;
}

// As it came, and as a frame around what came, whose checksum is right.
bool run_preface(Bytes input) {
  for (const Kind kind : {Kind::kHello, Kind::kError, Kind::kStart})
    run_frame(preface::encode_frame(kind, input));
  return run_frame(input);
}

preface::Introduction introduction(std::uint64_t seed) {
  RandomMessages random(seed);
  preface::Introduction one;
  one.link_id = seed;
  one.pid = 7;
  one.challenge_address = seed << 40;
  one.worker_address = random.bytes(1 + random.number(40));
  one.payload = encode(random.hello());
  return one;
}

Inputs introduction_seeds(std::uint64_t seed) {
  return {preface::encode_introduction(introduction(seed))};
}

Inputs preface_seeds(std::uint64_t seed) {
  const auto told = preface::encode_introduction(introduction(seed));
  const auto error = preface::encode_error(Status::rejected("later"));
  return {
      preface::encode_frame(Kind::kHello, told),
      preface::encode_frame(Kind::kWelcome, told),
      preface::encode_frame(Kind::kRefusal, encode(RandomMessages(seed).hello_reply())),
      preface::encode_frame(Kind::kError, error),
      preface::encode_frame(Kind::kReady, {}),
      preface::encode_frame(Kind::kStart, preface::encode_terms({seed % 3 == 1, seed % 3 == 2}))};
}

// ---- active messages

bool run_am_header(Bytes input) {
  const auto header = decode_am_header(input);
  if (!header.ok()) return refused(header.status());
  PRECIS_CHECK(std::ranges::equal(encode_am_header(*header), input));
  PRECIS_CHECK(am_link_id(input) == header->link_id);
  return true;
}

Inputs am_header_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (auto kind = AmKind::kMessage; kind <= AmKind::kDropped;
       kind = static_cast<AmKind>(static_cast<std::uint32_t>(kind) + 1)) {
    const auto bytes = encode_am_header({seed, kind, StatusCode::kRejected, 1, 2, 3, 4});
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

// How many messages there are said to be, u8, then the messages.
bool run_messages(Bytes input) {
  if (input.empty()) return false;
  const auto count = std::to_integer<std::uint64_t>(input[0]);
  const auto messages = unpack_messages({input.begin() + 1, input.end()}, count);
  if (!messages.ok()) return refused(messages.status());
  PRECIS_CHECK(messages->size() == count);
  PRECIS_CHECK(std::ranges::equal(pack_messages(*messages), input.subspan(1)));
  return true;
}

Inputs messages_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (const std::size_t count : {1, 3}) {
    const auto size = static_cast<std::size_t>(1 + seed % 50);
    auto bytes = pack_messages(std::vector(count, std::vector<std::byte>(size, std::byte{7})));
    bytes.insert(bytes.begin(), static_cast<std::byte>(count));
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

bool run_region_key(Bytes input) {
  const auto key = decode_region_key(std::string(as_text(input)));
  if (!key.ok()) return refused(key.status());
  PRECIS_CHECK(encode_region_key(*key) == as_text(input));
  return true;
}

Inputs region_key_seeds(std::uint64_t seed) {
  return {bytes_of(encode_region_key({seed, 3, 4, 5u << 20, 6, "key"})),
          bytes_of(encode_region_key({0, 3, 4, 0, 0, ""}))};
}

// ---- the proof that a client is a process of this host: pid u32, address u64, challenge 16 B

struct Claim {
  std::uint32_t pid = 0;
  std::uint64_t address = 0;  // 0: where the answer is
  HostChallenge challenge{};
};
constexpr HostChallenge kAnswer = {std::byte{1}, std::byte{2}, std::byte{3}};

std::vector<std::byte> encode(const Claim& claim) {
  std::vector<std::byte> bytes;
  put_le(bytes, claim.pid);
  put_le(bytes, claim.address);
  put_bytes(bytes, claim.challenge);
  return bytes;
}

bool run_prove_host(Bytes input) {
  LeReader reader(input);
  Claim claim;
  claim.pid = reader.get<std::uint32_t>();
  claim.address = reader.get<std::uint64_t>();
  const Bytes challenge = reader.take(claim.challenge.size());
  if (!reader.ok()) return false;
  std::ranges::copy(challenge, claim.challenge.begin());

  static HostWindow window;
  window.answer(kAnswer);
  // This process, or one that cannot be: other processes are none of a test's business.
  const auto self = static_cast<std::uint32_t>(::getpid());
  constexpr std::uint32_t kPidsMost = 1u << 22;
  const bool is_self = claim.pid % 2 == 0;
  const std::uint64_t address = claim.address == 0 ? window.challenge_address() : claim.address;
  const auto peer =
      HostPeer::prove(is_self ? self : kPidsMost | claim.pid, address, claim.challenge);
  if (!peer.ok()) return refused(peer.status());
  PRECIS_CHECK(is_self);
  if (claim.address == 0) PRECIS_CHECK(claim.challenge == kAnswer);
  return true;
}

Inputs claim_seeds(std::uint64_t) { return {encode(Claim{0, 0, kAnswer})}; }

constexpr Target kTargets[] = {
    {"read_preface", run_preface, preface_seeds},
    {"decode_introduction", run_introduction, introduction_seeds},
    {"decode_am_header", run_am_header, am_header_seeds},
    {"unpack_messages", run_messages, messages_seeds},
    {"decode_region_key", run_region_key, region_key_seeds},
    {"prove_host", run_prove_host, claim_seeds},
};

}  // namespace

std::span<const Target> transport_targets() { return kTargets; }

}  // namespace precis::fuzz
