// A channel of control frames to and from a peer: over a socket (control_stream.h), or within the
// process (cachesvc/embed/loopback.h). Used on the loop's thread. Owners share it with pending
// callbacks.
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
    std::function<void(Status)> on_end;  // once: the peer is gone, or sent bad frames
  };
  virtual ~FrameChannel() = default;
  // Starts the delivery of frames, each of at most limits::kMessageBytesMax. A second call replaces
  // the handlers.
  virtual void start(Handlers handlers) = 0;
  // From now on, received frames are delivered in turns. The channel asks `turns` for each turn;
  // `turns` calls its argument once, on the loop. Without `turns`, frames are delivered in the
  // loop's own order.
  using Turns = std::function<void(std::function<void()>)>;
  virtual void take_turns(Turns) {}
  // Ends the channel with kRejected if more than limits::kSendQueueBytesMax bytes are unsent.
  virtual void send(FrameKind kind, std::vector<std::byte> body, std::uint64_t after_bulk = 0) = 0;
  virtual std::size_t unsent_bytes() const = 0;
  // Sends the queued frames, as far as the peer accepts them within `timeout`, and closes. No
  // handler is called afterwards.
  virtual void close(std::chrono::milliseconds timeout) = 0;
};

}  // namespace precis
