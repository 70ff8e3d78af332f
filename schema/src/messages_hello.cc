// The first message of each side. Their leading fields keep their place for ever (control.capnp).
#include "capnp_edge.h"
#include "control.capnp.h"
#include "precis/limits.h"
#include "precis/messages.h"
#include "wire_fields.h"
#include "wire_status.h"

namespace precis {
namespace wire {

static Status check_magic(std::uint32_t magic) {
  if (magic == HELLO_MAGIC) return {};
  return field_error("magic", "is " + std::to_string(magic) + ", the peer does not speak Precis");
}

static Status read(Hello::Reader in, msg::Hello& out) {
  PRECIS_TRY(check_magic(in.getMagic()));
  out.protocol_version = in.getProtocolVersion();
  if (out.protocol_version != kProtocolVersion) return {};  // The rest is not ours to read.
  PRECIS_TRY(read_name("client", in.getClient(), out.client));
  PRECIS_TRY(read_name("tenant", in.getTenant(), out.tenant));
  return read_text("token", in.getToken(), limits::kCredentialBytesMax, out.token);
}

static Status read(HelloReply::Reader in, msg::HelloReply& out) {
  PRECIS_TRY(check_magic(in.getMagic()));
  out.protocol_version = in.getProtocolVersion();
  PRECIS_TRY(read_status(in.getCode(), in.getMessage(), in.getRetryAfterMs(), out.status));
  return read_name("server", in.getServer(), out.server);
}

}  // namespace wire

std::vector<std::byte> encode(const msg::Hello& hello) {
  MessageWriter message;
  auto out = message.root<wire::Hello>();
  out.setMagic(wire::HELLO_MAGIC);
  out.setProtocolVersion(hello.protocol_version);
  out.setClient(as_text(hello.client));
  out.setTenant(as_text(hello.tenant));
  out.setToken(as_text(hello.token));
  return message.take();
}

std::vector<std::byte> encode(const msg::HelloReply& reply) {
  MessageWriter message;
  auto out = message.root<wire::HelloReply>();
  out.setMagic(wire::HELLO_MAGIC);
  out.setProtocolVersion(reply.protocol_version);
  out.setCode(static_cast<wire::StatusCode>(reply.status.code()));
  out.setMessage(as_text(wire::wire_message(reply.status)));
  out.setRetryAfterMs(reply.status.retry_after_ms());
  out.setServer(as_text(reply.server));
  return message.take();
}

Result<msg::Hello> decode_hello(Bytes bytes) {
  return decode_root<wire::Hello, msg::Hello>("hello", bytes, limits::kHelloBytesMax);
}

Result<msg::HelloReply> decode_hello_reply(Bytes bytes) {
  return decode_root<wire::HelloReply, msg::HelloReply>("hello reply", bytes,
                                                        limits::kHelloBytesMax);
}

}  // namespace precis
