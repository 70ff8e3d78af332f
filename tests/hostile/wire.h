// One socket to precisd, and frames on it, as a hostile client uses them: whatever bytes it is
// given, with descriptors or without. Never waits longer than it is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "precis/frames.h"
#include "precis/status.h"

namespace precis::hostile {

using Buffer = std::vector<std::byte>;
using std::chrono::milliseconds;

// The address at which the service under attack listens.
struct Target {
  std::uint16_t port = 0;
  std::string unix_path;
};

struct ControlFrame {
  FrameHeader header;
  Buffer body;
};

class Wire {
 public:
  Wire() = default;
  // From 127.0.0.`host`, so that one machine is many addresses to the service.
  static Wire tcp(const Target& target, std::uint8_t host = 1);
  static Wire unix_socket(const Target& target);

  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  void close() { socket_ = Descriptor(); }
  // False if the peer is gone, or took not all of it in `patience`.
  bool send(Bytes bytes, const std::vector<int>& pass = {},
            milliseconds patience = milliseconds(2000));
  // As much as the kernel takes at once.
  std::size_t send_some(Bytes bytes);
  // Nothing if the peer is gone, or sent too little in `patience`.
  std::optional<Buffer> read(std::size_t bytes, milliseconds patience);
  std::optional<ControlFrame> read_frame(milliseconds patience);
  std::optional<BulkHeader> read_bulk(milliseconds patience);
  // Whether the peer closes within `patience`; what it sends until then is thrown away.
  bool ends_within(milliseconds patience);

 private:
  explicit Wire(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

// A control frame's bytes.
Buffer frame(FrameKind kind, Bytes body);
Buffer frame(const BulkHeader& header, Bytes data = {});

}  // namespace precis::hostile
