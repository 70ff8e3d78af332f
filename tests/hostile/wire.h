// One socket to precisd and frames on it, for hostile clients: sends any bytes, with or without
// descriptors. Never waits longer than its `patience`.
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

// The addresses of the attacked service.
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
  // Connects from 127.0.0.`host`, so that one machine has many addresses for the service.
  static Wire tcp(const Target& target, std::uint8_t host = 1);
  static Wire unix_socket(const Target& target);

  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  void close() { socket_ = Descriptor(); }
  // False if the peer is gone, or did not take all bytes within `patience`.
  bool send(Bytes bytes, const std::vector<int>& pass = {},
            milliseconds patience = milliseconds(2000));
  // Sends as many bytes as the kernel takes at once; returns their number.
  std::size_t send_some(Bytes bytes);
  // Nothing if the peer is gone, or sent too few bytes within `patience`.
  std::optional<Buffer> read(std::size_t bytes, milliseconds patience);
  std::optional<ControlFrame> read_frame(milliseconds patience);
  std::optional<BulkHeader> read_bulk(milliseconds patience);
  // Whether the peer closes within `patience`. Discards the bytes that it sends until then.
  bool ends_within(milliseconds patience);

 private:
  explicit Wire(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
};

// The bytes of a control frame, and of a bulk frame.
Buffer frame(FrameKind kind, Bytes body);
Buffer frame(const BulkHeader& header, Bytes data = {});

}  // namespace precis::hostile
