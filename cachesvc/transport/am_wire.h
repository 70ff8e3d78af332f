// The header of every active message between two UCX transports; one UCX message id carries them
// all.
//
//   link id u64 | kind u32 | code u32 | op u64 | region u64 | offset u64 | size u64      (48 B,
//   little endian)
//
// kMessage      op = its number on this link, from 1; data = count (offset) control messages,
// packed kGoodbye      op = the number it would have; nothing follows kPullRequest  server: send me
// [offset, offset + size) of region, as kPullData of this op kPullData     client: data = those
// bytes kPushData     server: data = bytes for [offset, offset + size) of region kDone client: the
// push of this op is in place, or the pull or push failed: code, data = text
//
// Where the link has a stream (bulk_stream.h), kPullData and kPushData travel there, their data
// behind the same header.
//
// and where the server reads and writes by one-sided operations:
// kExposed      client: region may be used
// kRevoke       client: region may not be used any more; answer when nothing of it is under way
// kRevoked      server: nothing is
//
// and where the server maps the client's pages:
// kDropped      client: no region will be of the pages of this id (region) any more
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

enum class AmKind : std::uint32_t {
  kMessage = 1,
  kGoodbye = 2,
  kPullRequest = 3,
  kPullData = 4,
  kPushData = 5,
  kDone = 6,
  kExposed = 7,
  kRevoke = 8,
  kRevoked = 9,
  kDropped = 10,
};

struct AmHeader {
  static constexpr std::size_t kBytes = 48;
  std::uint64_t link_id = 0;  // the receiver's name for the link
  AmKind kind = AmKind::kMessage;
  StatusCode code = StatusCode::kOk;
  std::uint64_t op = 0;
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  bool operator==(const AmHeader&) const = default;
};

// Several messages travel together only up to here, their sizes not counted: what is larger is
// worth a trip of its own.
inline constexpr std::size_t kTogetherBytesMax = 64u << 10;

// Messages in one: one stands for itself, of several, none of them empty, each follows its size, a
// u32.
std::vector<std::byte> pack_messages(std::vector<std::vector<std::byte>> messages);
// kInvalidArgument where `bytes` are not `count` messages, at least one, or not as the above: so
// that nobody has many made of few bytes.
Result<std::vector<std::vector<std::byte>>> unpack_messages(std::vector<std::byte> bytes,
                                                            std::uint64_t count);

std::array<std::byte, AmHeader::kBytes> encode_am_header(const AmHeader& header);
// The link id alone, to know whom a broken header concerns; 0, which is nobody's, if it is not
// there.
std::uint64_t am_link_id(Bytes header);
// kInvalidArgument for another length, an unknown kind or an unknown code.
Result<AmHeader> decode_am_header(Bytes header);

// What stands in RemoteRegion::key: how the server may reach the region other than by messages.
struct RegionKey {
  std::uint64_t host_slot = 0;  // address of the region's HostSlot (host_copy.h), 0 for none
  // The Pages that the region is a part of: their number, never used twice by one peer, which of
  // the peer's descriptors is their file, its size, and where in it the region begins. 0 for none.
  std::uint64_t pages = 0;
  std::uint32_t pages_descriptor = 0;
  std::uint64_t pages_bytes = 0;
  std::uint64_t pages_offset = 0;
  std::string ucx;  // UCX's remote key
  bool operator==(const RegionKey&) const = default;
};
std::string encode_region_key(const RegionKey& key);
Result<RegionKey> decode_region_key(const std::string& bytes);

}  // namespace precis
