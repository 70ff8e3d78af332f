#include "cachesvc/transport/preface.h"

#include <algorithm>
#include <string>

#include "cachesvc/transport/little_endian.h"

namespace precis::preface {
namespace {

constexpr std::uint64_t kMagic = 0x4650534943455250;  // "PRECISPF"

// FNV-1a: against accidents on the way, not against intent.
std::uint64_t checksum(Bytes bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  return hash;
}

std::vector<std::byte> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

std::vector<std::byte> encode_frame(Kind kind, Bytes body) {
  std::vector<std::byte> frame;
  frame.reserve(kHeaderBytes + body.size());
  put_le(frame, kMagic);
  put_le(frame, kVersion);
  put_le(frame, static_cast<std::uint32_t>(kind));
  put_le(frame, static_cast<std::uint32_t>(body.size()));
  put_le(frame, std::uint32_t{0});
  put_le(frame, checksum(body));
  put_bytes(frame, body);
  return frame;
}

Result<Header> parse_header(Bytes bytes) {
  LeReader reader(bytes);
  const auto magic = reader.get<std::uint64_t>();
  const auto version = reader.get<std::uint32_t>();
  const auto kind = reader.get<std::uint32_t>();
  Header header;
  header.body_bytes = reader.get<std::uint32_t>();
  reader.get<std::uint32_t>();
  header.checksum = reader.get<std::uint64_t>();
  if (!reader.ok() || magic != kMagic) {
    return Status::corruption(
        "no precisd and no client of one begins like this; is the port right?");
  }
  header.kind = static_cast<Kind>(kind);
  // An error is read from any version: it is how versions refuse each other.
  if (version != kVersion && header.kind != Kind::kError) {
    return Status::version("preface version " + std::to_string(version) + ", this side speaks " +
                           std::to_string(kVersion));
  }
  if (kind < static_cast<std::uint32_t>(Kind::kHello) ||
      kind > static_cast<std::uint32_t>(Kind::kStart)) {
    return Status::invalid("preface frame of unknown kind " + std::to_string(kind));
  }
  if (header.body_bytes > kBodyBytesMax) {
    return Status::invalid("preface frame of " + std::to_string(header.body_bytes) +
                           " B exceeds the limit of " + std::to_string(kBodyBytesMax) + " B");
  }
  return header;
}

Status check_body(const Header& header, Bytes body) {
  if (body.size() == header.body_bytes && checksum(body) == header.checksum) return {};
  return Status::corruption("preface frame does not match its checksum");
}

std::vector<std::byte> encode_introduction(const Introduction& introduction) {
  std::vector<std::byte> body;
  put_le(body, introduction.link_id);
  put_le(body, introduction.challenge_address);
  put_le(body, introduction.pid);
  put_le(body, static_cast<std::uint32_t>(introduction.worker_address.size()));
  put_bytes(body, introduction.host);
  put_bytes(body, introduction.challenge);
  put_bytes(body, introduction.worker_address);
  put_bytes(body, introduction.payload);
  return body;
}

Result<Introduction> decode_introduction(Bytes body) {
  LeReader reader(body);
  Introduction introduction;
  introduction.link_id = reader.get<std::uint64_t>();
  introduction.challenge_address = reader.get<std::uint64_t>();
  introduction.pid = reader.get<std::uint32_t>();
  const auto address_bytes = reader.get<std::uint32_t>();
  const Bytes host = reader.take(introduction.host.size());
  const Bytes challenge = reader.take(introduction.challenge.size());
  if (address_bytes > kWorkerAddressBytesMax) {
    return Status::invalid("worker address of " + std::to_string(address_bytes) +
                           " B exceeds the limit of " + std::to_string(kWorkerAddressBytesMax) +
                           " B");
  }
  introduction.worker_address = copy(reader.take(address_bytes));
  if (!reader.ok() || introduction.worker_address.empty()) {
    return Status::invalid("introduction of " + std::to_string(body.size()) + " B is truncated");
  }
  std::copy(host.begin(), host.end(), introduction.host.begin());
  std::copy(challenge.begin(), challenge.end(), introduction.challenge.begin());
  introduction.payload = copy(reader.rest());
  if (introduction.payload.size() > limits::kHelloBytesMax) {
    return Status::invalid("greeting of " + std::to_string(introduction.payload.size()) +
                           " B exceeds the limit of " + std::to_string(limits::kHelloBytesMax) +
                           " B");
  }
  return introduction;
}

std::vector<std::byte> encode_terms(const Terms& terms) {
  std::vector<std::byte> body;
  put_le(body, static_cast<std::uint8_t>(terms.one_sided));
  put_le(body, static_cast<std::uint8_t>(terms.stream));
  return body;
}

Result<Terms> decode_terms(Bytes body) {
  LeReader reader(body);
  const auto one_sided = reader.get<std::uint8_t>(), stream = reader.get<std::uint8_t>();
  if (!reader.ok() || !reader.rest().empty() || one_sided > 1 || stream > 1 ||
      one_sided + stream > 1) {
    return Status::invalid("terms are two bytes, one_sided and stream, of which one at most is 1");
  }
  return Terms{one_sided == 1, stream == 1};
}

std::vector<std::byte> encode_error(const Status& status) {
  std::vector<std::byte> body;
  put_le(body, static_cast<std::uint8_t>(status.code()));
  const auto text = std::as_bytes(std::span(status.message()));
  put_bytes(body, text.first(std::min(text.size(), limits::kErrorMessageBytesMax)));
  return body;
}

Status decode_error(Bytes body) {
  LeReader reader(body);
  const auto code = reader.get<std::uint8_t>();
  const Bytes text = reader.rest();
  if (code == 0 || code > kStatusCodeMax || text.size() > limits::kErrorMessageBytesMax) {
    return Status::unavailable("the peer refused the connection and its reason is not readable");
  }
  return {static_cast<StatusCode>(code),
          "the peer refused the connection: " +
              std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

}  // namespace precis::preface
