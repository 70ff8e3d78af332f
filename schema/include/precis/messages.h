// Every message of the protocol as a plain struct, and its bytes. The structs are generated from
// schema/control.capnp, which explains the protocol in order and each field; no Cap'n Proto header
// is needed to use this.
//
// After a connection is admitted (greeting.h) the client sends Requests, each with an id that it
// chooses. The server answers every Request with exactly one Reply of the same id, also a cancelled
// one. A Get's Reply comes after one LayerServed per layer. Messages never carry bulk bytes: the
// server pulls and pushes those (cachesvc/transport/transport.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "precis/frames.h"
#include "precis/schema/control.h"
#include "precis/view.h"

namespace precis {
namespace msg {

struct Request {
  std::uint64_t id = 0;
  RequestBody body;
  bool operator==(const Request&) const = default;
};
struct Reply {
  std::uint64_t id = 0;
  Status status;  // if it is an error, `body` is Done
  ReplyBody body;
  bool operator==(const Reply&) const = default;
};
using ServerMessage = std::variant<Reply, LayerServed>;

inline const RequestKind& kind_of(const RequestBody& request) {
  return kRequestKinds[request.index()];
}

// Whether the match of this lookup has counts.
inline bool asks_for_counts(const Lookup& lookup) { return lookup.keep || lookup.align != 1; }

}  // namespace msg

// The budget at which a segment is stored now.
template <typename Row>
const Budget& stored_budget(const Row& row) {
  return row.trimmed ? *row.trimmed : row.budget;
}

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
