// Messages as bytes. The generated wire_control.cc encodes the structs; this file encodes the
// unions and Status.
#include "precis/messages.h"

#include "capnp_edge.h"
#include "precis/limits.h"
#include "wire_control.h"
#include "wire_fields.h"

namespace precis {
namespace wire {

static void write(Reply::Builder out, const msg::Reply& in) {
  out.setId(in.id);
  out.setCode(static_cast<StatusCode>(in.status.code()));
  out.setMessage(as_text(clean_text(in.status.message(), limits::kErrorMessageBytesMax)));
  out.setRetryAfterMs(in.status.retry_after_ms());
  write_body(out.initBody(), in.body);
}

static Status read_status(Reply::Reader in, Status& out) {
  precis::StatusCode code{};
  std::string text;
  PRECIS_TRY(
      read_enum("code", in.getCode(), static_cast<precis::StatusCode>(kStatusCodeMax), code));
  PRECIS_TRY(read_text("message", in.getMessage(), limits::kErrorMessageBytesMax, text));
  const std::uint32_t retry_after_ms = in.getRetryAfterMs();
  if (retry_after_ms != 0 && !may_have_retry_after(code)) {
    return field_error("retry_after_ms", "is set for a code that has none");
  }
  out = Status(code, std::move(text), retry_after_ms);
  return {};
}

static Status read(Reply::Reader in, msg::Reply& out) {
  out.id = in.getId();
  PRECIS_TRY(read_status(in, out.status));
  return read_body(in.getBody(), out.body);
}

static Status read(Request::Reader in, msg::Request& out) {
  out.id = in.getId();
  return read_body(in, out.body);
}

static Status read(ServerMessage::Reader in, msg::ServerMessage& out) {
  switch (in.which()) {
    case ServerMessage::REPLY: return read(in.getReply(), out.emplace<msg::Reply>());
    case ServerMessage::LAYER_SERVED:
      return read(in.getLayerServed(), out.emplace<msg::LayerServed>());
  }
  return unknown_kind(static_cast<unsigned>(in.which()));
}

// Returns the bytes of a request's arrays, so that its message is allocated once.
static std::size_t payload_bytes(const msg::RequestBody& body) {
  if (const auto* put = std::get_if<msg::BeginPut>(&body)) {
    return put->tokens.size() * sizeof(TokenId);
  }
  if (const auto* lookup = std::get_if<msg::Lookup>(&body)) {
    return lookup->tokens.size() * sizeof(TokenId);
  }
  std::size_t counts = 0;
  if (const auto* get = std::get_if<msg::Get>(&body)) {
    for (const msg::GetLink& link : get->links) counts += link.counts.size();
  }
  return counts * sizeof(std::uint32_t);
}

}  // namespace wire

std::vector<std::byte> encode(const msg::Request& request) {
  MessageWriter message(wire::payload_bytes(request.body));
  auto out = message.root<wire::Request>();
  out.setId(request.id);
  wire::write_body(out, request.body);
  return message.take();
}

Result<msg::Request> decode_request(Bytes bytes) {
  return decode_root<wire::Request, msg::Request>("request", bytes, limits::kMessageBytesMax);
}

std::optional<std::uint64_t> request_id(Bytes bytes) {
  std::optional<std::uint64_t> id;
  const Status status =
      read_message("request", bytes, limits::kMessageBytesMax, [&](capnp::MessageReader& message) {
        id = message.getRoot<wire::Request>().getId();
        return Status();
      });
  if (!status.ok()) return std::nullopt;
  return id;
}

std::vector<std::byte> encode(const msg::ServerMessage& server_message) {
  MessageWriter message;
  auto out = message.root<wire::ServerMessage>();
  if (const auto* reply = std::get_if<msg::Reply>(&server_message)) {
    wire::write(out.initReply(), *reply);
  } else {
    wire::write(out.initLayerServed(), std::get<msg::LayerServed>(server_message));
  }
  return message.take();
}

Result<msg::ServerMessage> decode_server_message(Bytes bytes) {
  return decode_root<wire::ServerMessage, msg::ServerMessage>("server message", bytes,
                                                              limits::kMessageBytesMax);
}

std::vector<std::byte> encode(const msg::PassedMatch& match) {
  MessageWriter message(match.tokens.size() * sizeof(TokenId));
  wire::write(message.root<wire::PassedMatch>(), match);
  return message.take();
}

Result<msg::PassedMatch> decode_passed_match(Bytes bytes) {
  constexpr std::uint32_t kVersion = 1;
  msg::PassedMatch match;
  PRECIS_TRY(
      read_message("match", bytes, limits::kMessageBytesMax, [&](capnp::MessageReader& message) {
        const auto root = message.getRoot<wire::PassedMatch>();
        if (root.getVersion() > kVersion) {
          return Status::version("version is " + std::to_string(root.getVersion()) +
                                 ", this build reads " + std::to_string(kVersion));
        }
        PRECIS_TRY(check_range("version", root.getVersion(), 1, kVersion));
        return wire::read(root, match);
      }));
  return match;
}

}  // namespace precis
