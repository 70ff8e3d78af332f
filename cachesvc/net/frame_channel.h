// Control frames to a peer and from it: over a socket (control_stream.h), or within the process
// (cachesvc/embed/loopback.h). Used on the loop's thread. Owners share it with callbacks under way.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "precis/frames.h"
#include "precis/status.h"

namespace precis {

class FrameChannel {
 public:
  struct Handlers {
    std::function<void(const FrameHeader&, std::vector<std::byte>)> on_frame;
    std::function<void(Status)> on_end;  // once: the peer is gone, or broke the frames
  };
  virtual ~FrameChannel() = default;
  // Frames are handed out from now on, each of at most limits::kMessageBytesMax. Again: to others.
  virtual void start(Handlers handlers) = 0;
  // From now on what arrives is handed out in turns, for each of which `turns` is asked: it calls
  // what it is given, once, on the loop. Before that the loop's own order decides.
  using Turns = std::function<void(std::function<void()>)>;
  virtual void take_turns(Turns) {}
  // More than limits::kSendQueueBytesMax unsent ends it with kRejected.
  virtual void send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk = 0) = 0;
  virtual std::size_t unsent_bytes() const = 0;
  // Sends what is queued, as far as the peer takes it within `patience`, and closes; after this
  // nothing is called back.
  virtual void close(std::chrono::milliseconds patience) = 0;
};

}  // namespace precis
