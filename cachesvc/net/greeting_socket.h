// A new socket before both sides are authenticated, with operations for coroutines (task.h). It
// reads single frames and not a byte beyond them, so that a stream can take over the socket. Used
// on the loop's thread. Destroying an awaiting coroutine also destroys its awaiter, so nothing
// resumes it.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/net/socket.h"
#include "precis/frames.h"

namespace precis {

// co_await it to wait until the descriptor is readable, or writable if `writable`.
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

  // The TLS handshake; a socket without TLS succeeds at once. An error if the peer broke off, or if
  // TLS refused the peer.
  Task<Status> shake_hands();
  // kInvalidArgument if the bytes are no frame, or the frame's body exceeds `body_bytes_max`.
  // kUnavailable if the peer is gone.
  Task<Result<Frame>> read(std::size_t body_bytes_max);
  // Writes at once: the kernel has room for the few frames of a greeting. kUnavailable otherwise.
  Status write(FrameKind kind, Bytes body);
  // Signals the end of writing, and discards received bytes until the peer closes.
  Task<Status> see_off();

  const Socket& socket() const { return *socket_; }
  std::unique_ptr<Socket> release() { return std::move(socket_); }

 private:
  Task<Status> fill(MutableBytes into);

  EventLoop& loop_;
  std::unique_ptr<Socket> socket_;
};

}  // namespace precis
