// The interface that both ends of a connection share: messages, until one end closes it
// (transport.h, client_transport.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

// The destructor closes the connection.
class Messages {
 public:
  struct Handlers {
    // A whole control message. Messages arrive in the order in which they were sent, and after the
    // bytes of every push that completed before the server sent them.
    std::function<void(std::vector<std::byte>)> on_message;
    // Called once, when the peer is gone or broke the protocol. No on_message follows.
    std::function<void(Status)> on_closed;
  };
  virtual ~Messages() = default;
  // Starts the delivery of messages. Earlier messages wait in a queue until then.
  virtual void start(Handlers handlers) = 0;
  // Queues one message of at most limits::kMessageBytesMax. Failures are reported by on_closed. If
  // more than limits::kSendQueueBytesMax wait, the peer does not read, and the connection closes.
  virtual void send(std::vector<std::byte> message) = 0;
  virtual void close() = 0;
  // "loopback", "tcp (stream)", "tls (stream)", "unix (shared)", for users and metrics.
  virtual std::string description() const = 0;
};

}  // namespace precis
