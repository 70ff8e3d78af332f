#include "tests/bench/service/raw_ping_pong.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/bench/service/on_core.h"

namespace precis::bench {
namespace {

// Sent before every request: its length and the length of its answer.
struct Sizes {
  std::uint64_t ask = 0, answer = 0;
};

bool move_all(ssize_t (*call)(int, std::byte*, std::size_t), int fd, std::byte* at,
              std::size_t size) {
  while (size > 0) {
    const ssize_t n = call(fd, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}
bool send_all(int fd, std::byte* at, std::size_t size) {
  return move_all([](int f, std::byte* p, std::size_t n) { return ::send(f, p, n, MSG_NOSIGNAL); },
                  fd, at, size);
}
bool receive_all(int fd, std::byte* at, std::size_t size) {
  return move_all([](int f, std::byte* p, std::size_t n) { return ::read(f, p, n); }, fd, at, size);
}

// Runs in the child. Only system calls are allowed: other threads of the parent may have held any
// lock at the fork.
[[noreturn]] void answer(int fd, std::byte* buffer) {
  for (;;) {
    Sizes sizes;
    if (!receive_all(fd, reinterpret_cast<std::byte*>(&sizes), sizeof sizes) ||
        !receive_all(fd, buffer, sizes.ask) || !send_all(fd, buffer, sizes.answer)) {
      ::_exit(0);
    }
  }
}

int listening(sockaddr_in& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, length) == 0 && ::listen(fd, 1) == 0 &&
      ::getsockname(fd, generic, &length) == 0) {
    return fd;
  }
  ::close(fd);
  return -1;
}

void without_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Result<std::unique_ptr<RawPingPong>> RawPingPong::open(std::size_t bytes_max,
                                                       std::optional<unsigned> core) {
  std::unique_ptr<RawPingPong> made(new RawPingPong);
  made->buffer_.resize(sizeof(Sizes) + bytes_max);
  sockaddr_in address{};
  const int listener = listening(address);
  made->socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int connected =
      ::connect(made->socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int accepted = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  if (connected != 0 || accepted < 0) {
    return Status::unavailable(std::string("a socket on 127.0.0.1: ") + std::strerror(errno));
  }
  without_delay(made->socket_);
  without_delay(accepted);
  {
    std::optional<OnCore> placed;
    if (core) placed.emplace(*core);
    made->child_ = ::fork();
    if (made->child_ == 0) {
      ::close(made->socket_);  // so that only the parent holds this end
      answer(accepted, made->buffer_.data());
    }
  }
  ::close(accepted);
  if (made->child_ < 0) return Status::unavailable(std::string("fork: ") + std::strerror(errno));
  return made;
}

RawPingPong::~RawPingPong() {
  ::close(socket_);
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

Status RawPingPong::exchange(std::size_t ask_bytes, std::size_t answer_bytes) {
  const Sizes sizes{ask_bytes, answer_bytes};
  std::memcpy(buffer_.data(), &sizes, sizeof sizes);
  if (send_all(socket_, buffer_.data(), sizeof sizes + ask_bytes) &&
      receive_all(socket_, buffer_.data(), answer_bytes)) {
    return {};
  }
  return Status::unavailable(std::string("a ping-pong over 127.0.0.1: ") + std::strerror(errno));
}

}  // namespace precis::bench
