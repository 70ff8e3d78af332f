#include "cachesvc/net/greeting_socket.h"

#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>

namespace precis {

using State = Socket::Io::State;

void Readiness::await_suspend(std::coroutine_handle<> waiting) {
  watch_ = loop_.watch_socket(
      descriptor_,
      [waiting, writable = writable_] {
        if (!writable) waiting.resume();
      },
      [waiting] { waiting.resume(); });
  if (writable_) watch_->await_writable();
}

Task<Status> GreetingSocket::shake_hands() {
  for (;;) {
    const Socket::Io io = socket_->handshake();
    if (io.state != State::kWait) co_return io.why;
    co_await Readiness(loop_, socket_->descriptor());
  }
}

Task<Status> GreetingSocket::fill(MutableBytes into) {
  while (!into.empty()) {
    const Socket::Io io = socket_->read(into);
    if (io.state == State::kEnded) co_return io.why;
    if (io.state == State::kWait) co_await Readiness(loop_, socket_->descriptor());
    into = into.subspan(io.bytes);
  }
  co_return Status();
}

Task<Result<GreetingSocket::Frame>> GreetingSocket::read(std::size_t body_bytes_max) {
  std::array<std::byte, FrameHeader::kBytes> bytes;
  PRECIS_CO_TRY(co_await fill(bytes));
  PRECIS_CO_ASSIGN(const FrameHeader header, decode_frame_header(bytes));
  if (header.size_bytes > body_bytes_max) {
    co_return Status::invalid("a frame of " + std::to_string(header.size_bytes) +
                              " B exceeds the limit of " + std::to_string(body_bytes_max) + " B");
  }
  Frame frame{header.kind, std::vector<std::byte>(header.size_bytes)};
  PRECIS_CO_TRY(co_await fill(frame.body));
  co_return frame;
}

Status GreetingSocket::write(FrameKind kind, Bytes body) {
  const auto header = encode_frame_header({kind, static_cast<std::uint32_t>(body.size()), 0});
  const std::array<Bytes, 2> ranges{header, body};
  const Socket::Io io = socket_->write(ranges);
  if (io.state == State::kEnded) return io.why;
  if (io.bytes == header.size() + body.size()) return {};
  return Status::unavailable("the peer does not read its greeting");
}

Task<Status> GreetingSocket::see_off() {
  ::shutdown(socket_->descriptor(), SHUT_WR);
  std::array<std::byte, 4096> thrown_away;
  for (;;) {
    co_await Readiness(loop_, socket_->descriptor());
    const Socket::Io io = socket_->read(thrown_away);
    if (io.state == State::kEnded) co_return io.why;
  }
}

}  // namespace precis
