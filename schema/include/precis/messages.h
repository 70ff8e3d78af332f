// Every message of the protocol as a plain struct, and its conversion to bytes. The bytes are Cap'n
// Proto (schema/control.capnp explains the protocol in order); users of this file need no Cap'n
// Proto header.
//
// After a connection is admitted (greeting.h) the client sends Requests, each with an id that it
// chooses. The server answers every Request with exactly one Reply of the same id, cancelled ones
// too. A Get's Reply comes after one LayerServed per layer. Messages never carry bulk bytes: the
// server pulls and pushes those (cachesvc/transport/transport.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "precis/frames.h"
#include "precis/replies.h"
#include "precis/requests.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {
namespace msg {

// A match that one client passes to another, with all that a reader needs.
struct PassedMatch {
  Match match;
  ModelSpec model;
  Digest fingerprint;
  std::string adapter;
  std::optional<Budget> keep;  // keep and align: of the lookup
  std::uint32_t align = 1;
  std::vector<TokenId> tokens;  // the tokens that matched; empty: not included
  bool operator==(const PassedMatch&) const = default;
};

}  // namespace msg

// Encoders cannot fail: their callers keep the limits. Decoders check bytes from outside:
// kInvalidArgument names the field if content is truncated, oversize, unknown or out of range.
std::vector<std::byte> encode(const msg::Request&);
std::vector<std::byte> encode(const msg::ServerMessage&);
std::vector<std::byte> encode(const msg::PassedMatch&);
Result<msg::Request> decode_request(Bytes);
Result<msg::ServerMessage> decode_server_message(Bytes);
// kVersionMismatch if a newer build wrote the match.
Result<msg::PassedMatch> decode_passed_match(Bytes);
// The id of a Request that decode_request refuses, so the server can tell the sender what is wrong;
// none if the id is unreadable too.
std::optional<std::uint64_t> request_id(Bytes);

}  // namespace precis
