// What both ends of a connection have: messages, until one of them ends it (transport.h,
// client_transport.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

// Destroying it closes it.
class Messages {
 public:
  struct Handlers {
    // A whole control message. Messages arrive in the order they were sent, and after the bytes of
    // every push that completed before the server sent them.
    std::function<void(std::vector<std::byte>)> on_message;
    // Once, when the peer is gone or broke the protocol; no on_message follows.
    std::function<void(Status)> on_closed;
  };
  virtual ~Messages() = default;
  // Before any message is delivered; they queue until then.
  virtual void start(Handlers handlers) = 0;
  // Queues one message of at most limits::kMessageBytesMax. Failures show as on_closed. More than
  // limits::kSendQueueBytesMax waiting means the peer does not read: the connection closes.
  virtual void send(std::vector<std::byte> message) = 0;
  virtual void close() = 0;
  // "loopback", "tcp (stream)", "tls (stream)", "unix (shared)": for people and metrics.
  virtual std::string description() const = 0;
};

}  // namespace precis
