#include "cachesvc/net/handshake.h"

#include <utility>

namespace precis {

// Shared with what is posted.
struct Handshake::State : std::enable_shared_from_this<State> {
  std::unique_ptr<Socket> socket;
  Done done;
  std::unique_ptr<EventLoop::SocketWatch> watch;

  void step() {
    if (!done) return;
    const Socket::Io io = socket->handshake();
    if (io.state == Socket::Io::State::kWait) return;
    watch.reset();
    const auto call = std::exchange(done, nullptr);
    if (io.state == Socket::Io::State::kEnded) return call(io.why);
    call(std::move(socket));
  }
};

Handshake::Handshake(EventLoop& loop, std::unique_ptr<Socket> socket, Done done)
    : state_(std::make_shared<State>()) {
  state_->socket = std::move(socket);
  state_->done = std::move(done);
  if (state_->socket->is_encrypted()) {
    state_->watch = loop.watch_socket(
        state_->socket->descriptor(), [state = state_.get()] { state->step(); }, [] {});
  }
  loop.post([state = state_] { state->step(); });
}

Handshake::~Handshake() {
  state_->done = nullptr;
  state_->watch.reset();
}

}  // namespace precis
