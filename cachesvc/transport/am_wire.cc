#include "cachesvc/transport/am_wire.h"

#include <algorithm>
#include <string>

#include "cachesvc/transport/little_endian.h"

namespace precis {

std::array<std::byte, AmHeader::kBytes> encode_am_header(const AmHeader& header) {
  std::vector<std::byte> out;
  out.reserve(AmHeader::kBytes);
  put_le(out, header.link_id);
  put_le(out, static_cast<std::uint32_t>(header.kind));
  put_le(out, static_cast<std::uint32_t>(header.code));
  put_le(out, header.op);
  put_le(out, header.region);
  put_le(out, header.offset);
  put_le(out, header.size_bytes);
  std::array<std::byte, AmHeader::kBytes> bytes{};
  std::copy(out.begin(), out.end(), bytes.begin());
  return bytes;
}

std::vector<std::byte> pack_messages(std::vector<std::vector<std::byte>> messages) {
  if (messages.size() == 1) return std::move(messages.front());
  std::vector<std::byte> bytes;
  for (const auto& message : messages) {
    put_le(bytes, static_cast<std::uint32_t>(message.size()));
    put_bytes(bytes, message);
  }
  return bytes;
}

Result<std::vector<std::vector<std::byte>>> unpack_messages(std::vector<std::byte> bytes,
                                                            std::uint64_t count) {
  std::vector<std::vector<std::byte>> messages;
  if (count == 1) {
    messages.push_back(std::move(bytes));
    return messages;
  }
  const auto refuse = [&] {
    return Status::invalid(std::to_string(bytes.size()) + " B are not " + std::to_string(count) +
                           " messages");
  };
  constexpr std::size_t kSizeBytes = sizeof(std::uint32_t);
  // The first bounds the second: no product overflows.
  if (count == 0 || count > bytes.size() / (kSizeBytes + 1) ||
      bytes.size() > kTogetherBytesMax + count * kSizeBytes) {
    return refuse();
  }
  messages.reserve(count);
  LeReader reader(bytes);
  while (messages.size() < count) {
    const Bytes message = reader.take(reader.get<std::uint32_t>());
    if (message.empty()) return refuse();  // or cut
    messages.emplace_back(message.begin(), message.end());
  }
  if (!reader.rest().empty()) return refuse();
  return messages;
}

std::uint64_t am_link_id(Bytes header) { return LeReader(header).get<std::uint64_t>(); }

Result<AmHeader> decode_am_header(Bytes bytes) {
  if (bytes.size() != AmHeader::kBytes) {
    return Status::invalid("active message header of " + std::to_string(bytes.size()) +
                           " B, must be " + std::to_string(AmHeader::kBytes) + " B");
  }
  LeReader reader(bytes);
  AmHeader header;
  header.link_id = reader.get<std::uint64_t>();
  const auto kind = reader.get<std::uint32_t>();
  const auto code = reader.get<std::uint32_t>();
  header.op = reader.get<std::uint64_t>();
  header.region = reader.get<std::uint64_t>();
  header.offset = reader.get<std::uint64_t>();
  header.size_bytes = reader.get<std::uint64_t>();
  if (kind < static_cast<std::uint32_t>(AmKind::kMessage) ||
      kind > static_cast<std::uint32_t>(AmKind::kDropped)) {
    return Status::invalid("active message of unknown kind " + std::to_string(kind));
  }
  if (code > kStatusCodeMax) {
    return Status::invalid("active message with unknown status code " + std::to_string(code));
  }
  header.kind = static_cast<AmKind>(kind);
  header.code = static_cast<StatusCode>(code);
  return header;
}

std::string encode_region_key(const RegionKey& key) {
  std::vector<std::byte> numbers;
  put_le(numbers, key.host_slot);
  put_le(numbers, key.pages);
  put_le(numbers, key.pages_descriptor);
  put_le(numbers, key.pages_bytes);
  put_le(numbers, key.pages_offset);
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size()) + key.ucx;
}

Result<RegionKey> decode_region_key(const std::string& bytes) {
  LeReader reader(std::as_bytes(std::span(bytes)));
  RegionKey key;
  key.host_slot = reader.get<std::uint64_t>();
  key.pages = reader.get<std::uint64_t>();
  key.pages_descriptor = reader.get<std::uint32_t>();
  key.pages_bytes = reader.get<std::uint64_t>();
  key.pages_offset = reader.get<std::uint64_t>();
  if (!reader.ok()) {
    return Status::invalid("region key of " + std::to_string(bytes.size()) + " B is truncated");
  }
  const Bytes ucx = reader.rest();
  key.ucx.assign(reinterpret_cast<const char*>(ucx.data()), ucx.size());
  return key;
}

}  // namespace precis
