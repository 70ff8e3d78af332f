// The frames of a connection between two processes: control frames on one socket, bulk frames on
// another that the client has bound to it. All numbers are little endian.
//
//   client                                     server
//                                          <-  kChallenge {Challenge}
//   kHello {Hello}                         ->
//                                          <-  kWelcome {Welcome}, or
//                                              kRefusal {Welcome} and the end
//   kMessage {a Cap'n Proto message}      <->  kMessage
//   kRdma {RdmaTurn}                      <->  kRdma, where the Welcome says that RDMA is to be had
//
//   and on the bulk socket
//                                          <-  kChallenge {Challenge}
//   kBind {Bind}                           ->
//                                          <-  kBound {}, or kRefusal {Welcome} and the end
//   bulk frames                           <->  bulk frames
//
// Until kWelcome or kBound the server reads one frame of at most limits::kHelloBytesMax from a
// stranger, and parses nothing of it but Hello or Bind (greeting.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Of frames and messages. Both sides refuse a version they do not know.
inline constexpr std::uint32_t kProtocolVersion = 3;

enum class FrameKind : std::uint16_t {
  kChallenge = 1,
  kHello = 2,
  kWelcome = 3,
  kRefusal = 4,
  kBind = 5,
  kBound = 6,
  kMessage = 7,
  kRdma = 8,  // {RdmaTurn}: of an admitted client, and of the server in answer
};

// In front of every control frame: size u32 | kind u16 | magic u16 | after_bulk u64.
struct FrameHeader {
  static constexpr std::size_t kBytes = 16;
  FrameKind kind = FrameKind::kMessage;
  std::uint32_t size_bytes = 0;  // of the body
  // A message from the server counts the bulk frames with data that the server sent before it: the
  // client hands the message out once it has received as many. 0 elsewhere.
  std::uint64_t after_bulk = 0;
};
std::array<std::byte, FrameHeader::kBytes> encode_frame_header(const FrameHeader& header);
// kInvalidArgument for another magic or an unknown kind. The caller checks the size.
Result<FrameHeader> decode_frame_header(Bytes bytes);

enum class BulkKind : std::uint16_t {
  kPull = 1,     // server: send `size_bytes` at `offset` of `region` as transfer `id`; no data
  kData = 2,     // client: bytes of transfer `id` from `offset` of it
  kEnd = 3,      // client: transfer `id` is over; `offset` is 0, or 1 if the region is gone
  kPush = 4,     // server: bytes for `region` from `offset` on
  kShare = 5,    // client: buffer `id` of `offset` bytes; the memory file comes as a descriptor
  kShared = 6,   // server: buffer `id` is mapped (`offset` 1) or can't be (0)
  kUnshare = 7,  // client: buffer `id` is needed no more
};

// In front of every bulk frame: kind u16 | magic u16 | size u32 | id u64 | region u64 | offset u64.
struct BulkHeader {
  static constexpr std::size_t kBytes = 32;
  static constexpr std::uint32_t kDataBytesMax = 8u << 20;
  BulkKind kind = BulkKind::kPull;
  std::uint32_t size_bytes = 0;  // kPull: what is wanted; kData and kPush: the data that follows
  std::uint64_t id = 0;
  std::uint64_t region = 0;
  std::uint64_t offset = 0;

  bool has_data() const { return kind == BulkKind::kData || kind == BulkKind::kPush; }
};
std::array<std::byte, BulkHeader::kBytes> encode_bulk_header(const BulkHeader& header);
// kInvalidArgument for another magic, an unknown kind or a size above kDataBytesMax.
Result<BulkHeader> decode_bulk_header(Bytes bytes);

}  // namespace precis
