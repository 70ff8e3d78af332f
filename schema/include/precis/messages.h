// Every message of the protocol as a plain struct, and its bytes. The bytes are Cap'n Proto
// (schema/control.capnp tells the protocol in order); no Cap'n Proto header is needed to use this.
//
// Once a connection is admitted (greeting.h) the client sends Requests, each with an id of its own
// choice, and the server answers every Request with exactly one Reply of the same id; a Get's Reply
// comes after one LayerServed per layer, and a cancelled request is still answered. Bulk bytes are
// never in messages: the server pulls and pushes them (cachesvc/transport/transport.h).
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

// A match as one client hands it to another, with what is needed to read it.
struct PassedMatch {
  Match match;
  ModelSpec model;
  Digest fingerprint;
  std::string adapter;
  std::optional<Budget> keep;  // of the lookup, as align
  std::uint32_t align = 1;
  std::vector<TokenId> tokens;  // those that matched, or none: not said
  bool operator==(const PassedMatch&) const = default;
};

}  // namespace msg

// Encoders cannot fail: limits are the caller's to keep. Decoders take bytes from outside:
// truncated, oversize, unknown or out-of-range content is kInvalidArgument naming the field.
std::vector<std::byte> encode(const msg::Request&);
std::vector<std::byte> encode(const msg::ServerMessage&);
std::vector<std::byte> encode(const msg::PassedMatch&);
Result<msg::Request> decode_request(Bytes);
Result<msg::ServerMessage> decode_server_message(Bytes);
// kVersionMismatch where a newer build wrote it.
Result<msg::PassedMatch> decode_passed_match(Bytes);
// The id of a Request that decode_request refuses, so that its sender can be told what is wrong
// with it; none where not even that can be read.
std::optional<std::uint64_t> request_id(Bytes);

}  // namespace precis
