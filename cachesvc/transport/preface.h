// The preface: the few frames that two transports exchange over TCP before UCX says anything, so
// that random bytes, foreign versions and oversize greetings meet a parser of ours and get an
// answer.
//
//   client                                 server
//   kHello  {introduction, Hello}      ->
//                                      <-  kWelcome {introduction, HelloReply}
//                                          or kRefusal {HelloReply}, or kError {Status}; then
//                                          closed
//   makes its endpoint, and waits until
//   UCX has connected it
//   kReady  {}                         ->  takes its end of this, by making an endpoint: UCX finds
//                                          the two by counting those between two workers
//                                      <-  kStart {terms}, or kError; the link is up on both sides
//
// The server makes no endpoint of its own accord: UCX 1.13 aborts the process in which a first
// message waits for a connection that breaks as it comes about, and a client may die at any time.
//
// After that nothing is sent on the connection, or bulk bytes (bulk_stream.h), as the server said.
//
// A frame is a header of 32 bytes and a body, little endian:
//   magic "PRECISPF" | version u32 | kind u32 | body bytes u32 | zero u32 | checksum of the body
//   u64
// The header and kError stay as they are in every version, so that any two can refuse each other.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "precis/limits.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis::preface {

inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kWorkerAddressBytesMax = 64 * 1024;  // one entry per network device
inline constexpr std::size_t kBodyBytesMax =
    kWorkerAddressBytesMax + limits::kHelloBytesMax + 64 /* the fixed part, rounded up */;

enum class Kind : std::uint32_t {
  kHello = 1,
  kWelcome = 2,
  kRefusal = 3,
  kError = 4,
  kReady = 5,
  kStart = 6
};

struct Header {
  Kind kind = Kind::kError;
  std::uint32_t body_bytes = 0;
  std::uint64_t checksum = 0;
};

struct Frame {
  Kind kind = Kind::kError;
  std::vector<std::byte> body;
};

// What one side tells of itself, and the words of its layer above.
struct Introduction {
  // Stands in every message to this side; random, so that no other peer can guess it.
  std::uint64_t link_id = 0;
  std::array<std::byte, 16> host{};  // of the machine since its start; zeros if it has no such name
  // Client: where in its memory it will write `challenge` of the answer, to show that it is a
  // process of the server's host and that this memory is its own to give (host_copy.h).
  std::uint32_t pid = 0;
  std::uint64_t challenge_address = 0;
  std::array<std::byte, 16> challenge{};  // server
  std::vector<std::byte> worker_address;
  std::vector<std::byte> payload;  // Hello or HelloReply
  bool operator==(const Introduction&) const = default;
};

// How the server will reach the client's memory; neither: by messages, or within the host.
struct Terms {
  bool one_sided = false;  // by UCX's get and put
  bool stream = false;     // bulk bytes go over this connection (bulk_stream.h)
  bool operator==(const Terms&) const = default;
};

std::vector<std::byte> encode_frame(Kind kind, Bytes body);
// kCorruption if it is no preface at all, kVersionMismatch for another version, kInvalidArgument
// for a kind that does not exist or a body larger than kBodyBytesMax.
Result<Header> parse_header(Bytes header);
// kCorruption if the body is not the one that was sent.
Status check_body(const Header& header, Bytes body);

std::vector<std::byte> encode_introduction(const Introduction& introduction);
Result<Introduction> decode_introduction(Bytes body);
std::vector<std::byte> encode_terms(const Terms& terms);
Result<Terms> decode_terms(Bytes body);
// The body of kError. Decoding never fails: what it cannot read is kUnavailable and says so.
std::vector<std::byte> encode_error(const Status& status);
Status decode_error(Bytes body);

}  // namespace precis::preface
