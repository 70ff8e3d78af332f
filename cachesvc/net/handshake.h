// TLS's exchange on a new socket, without blocking. A socket without TLS passes at once.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/socket.h"

namespace precis {

// Ends with its handle. `done` runs on a turn of its own; an error is the peer's, or TLS's refusal.
class Handshake {
 public:
  using Done = std::function<void(Result<std::unique_ptr<Socket>>)>;
  Handshake(EventLoop& loop, std::unique_ptr<Socket> socket, Done done);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace precis
