// A new socket, until both sides know each other: what coroutines await of it (task.h). It reads
// single frames and not a byte beyond them, so that the socket may go on as a stream's. Used on the
// loop's thread. Whoever destroys what awaits it destroys it as well: nothing comes back then.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/net/socket.h"
#include "precis/frames.h"

namespace precis {

// co_await it: until the descriptor is readable, or for `writable` until it is that.
class Readiness {
 public:
  Readiness(EventLoop& loop, int descriptor, bool writable = false)
      : loop_(loop), descriptor_(descriptor), writable_(writable) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting);
  void await_resume() const noexcept {}

 private:
  EventLoop& loop_;
  const int descriptor_;
  const bool writable_;
  std::unique_ptr<EventLoop::SocketWatch> watch_;
};

class GreetingSocket {
 public:
  struct Frame {
    FrameKind kind;
    std::vector<std::byte> body;
  };
  GreetingSocket(EventLoop& loop, std::unique_ptr<Socket> socket)
      : loop_(loop), socket_(std::move(socket)) {}

  // TLS's exchange; a socket without TLS passes at once. An error is the peer's, or TLS's refusal.
  Task<Status> shake_hands();
  // kInvalidArgument for what is no frame, or one of more than `body_bytes_max`; kUnavailable where
  // the peer is gone.
  Task<Result<Frame>> read(std::size_t body_bytes_max);
  // At once: the kernel has room for the few frames of a greeting.
  Status write(FrameKind kind, Bytes body);
  // Says that nothing more comes, and throws away what comes until the peer closes.
  Task<Status> see_off();

  const Socket& socket() const { return *socket_; }
  std::unique_ptr<Socket> release() { return std::move(socket_); }

 private:
  Task<Status> fill(MutableBytes into);

  EventLoop& loop_;
  std::unique_ptr<Socket> socket_;
};

}  // namespace precis
