// The frames of a connection between two processes. Control frames travel on one socket, bulk
// frames on a second socket that the client binds to the first. All numbers are little endian.
//
//   client                                     server
//                                          <-  kChallenge {Challenge}
//   kHello {Hello}                         ->
//                                          <-  kWelcome {Welcome}, or
//                                              kRefusal {Welcome} and the end
//   kMessage {a Cap'n Proto message}      <->  kMessage
//   kRdma {RdmaTurn}                      <->  kRdma, if the Welcome offers RDMA
//
//   and on the bulk socket
//                                          <-  kChallenge {Challenge}
//   kBind {Bind}                           ->
//                                          <-  kBound {}, or kRefusal {Welcome} and the end
//   bulk frames                           <->  bulk frames
//
// Until kWelcome or kBound the server reads one frame of at most limits::kHelloBytesMax from a
// client that is not admitted, and parses only Hello or Bind from it (greeting.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Version of frames and messages. Both sides refuse a version that they do not know.
inline constexpr std::uint32_t kProtocolVersion = 9;

enum class FrameKind : std::uint16_t {
  kChallenge = 1,
  kHello = 2,
  kWelcome = 3,
  kRefusal = 4,
  kBind = 5,
  kBound = 6,
  kMessage = 7,
  kRdma = 8,  // {RdmaTurn}: from an admitted client, and the server's answer
};

// Precedes every control frame: size u32 | kind u16 | magic u16 | after_bulk u64.
struct FrameHeader {
  static constexpr std::size_t kBytes = 16;
  FrameKind kind = FrameKind::kMessage;
  std::uint32_t size_bytes = 0;  // of the body
  // In a message from the server: the number of bulk frames with data that the server sent before
  // the message. The client delivers the message after it has received that many. 0 in other
  // frames.
  std::uint64_t after_bulk = 0;
};
std::array<std::byte, FrameHeader::kBytes> encode_frame_header(const FrameHeader& header);
// kInvalidArgument for a wrong magic or an unknown kind. The caller checks the size.
Result<FrameHeader> decode_frame_header(Bytes bytes);

enum class BulkKind : std::uint16_t {
  kPull = 1,     // server: send `size_bytes` at `offset` of `region` as transfer `id`; no data
  kData = 2,     // client: bytes of transfer `id` from `offset` on
  kEnd = 3,      // client: transfer `id` ended; `offset` is 1 if the region is gone, else 0
  kPush = 4,     // server: bytes for `region` from `offset` on
  kShare = 5,    // client: buffer `id` of `offset` bytes; a descriptor passes its memory file
  kShared = 6,   // server: buffer `id` is mapped (`offset` 1) or cannot be (0)
  kUnshare = 7,  // client: buffer `id` is no longer needed
};

// Precedes every bulk frame: kind u16 | magic u16 | size u32 | id u64 | region u64 | offset u64.
struct BulkHeader {
  static constexpr std::size_t kBytes = 32;
  static constexpr std::uint32_t kDataBytesMax = 8u << 20;
  BulkKind kind = BulkKind::kPull;
  std::uint32_t size_bytes = 0;  // kPull: bytes requested; kData and kPush: bytes that follow
  std::uint64_t id = 0;
  std::uint64_t region = 0;
  std::uint64_t offset = 0;

  bool has_data() const { return kind == BulkKind::kData || kind == BulkKind::kPush; }
};
std::array<std::byte, BulkHeader::kBytes> encode_bulk_header(const BulkHeader& header);
// kInvalidArgument for a wrong magic, an unknown kind or a size above kDataBytesMax.
Result<BulkHeader> decode_bulk_header(Bytes bytes);

}  // namespace precis
