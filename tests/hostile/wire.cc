#include "tests/hostile/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "precis/limits.h"

namespace precis::hostile {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel's limit on descriptors in one message.
constexpr std::size_t kPassMax = 253;

bool wait(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd one{socket, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

ssize_t send_with(int socket, Bytes bytes, const std::vector<int>& pass) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kPassMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!pass.empty()) {
    const std::size_t size = std::min(pass.size(), kPassMax) * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), pass.data(), size);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

Wire Wire::tcp(const Target& target, std::uint8_t host) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  // Closing resets the connection: otherwise a hundred thousand sessions would use up the ports.
  const linger reset{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(0x7f000000U | host);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(target.port);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) != 0 ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    return {};
  }
  return Wire(std::move(socket));
}

Wire Wire::unix_socket(const Target& target) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  target.unix_path.copy(to.sun_path, sizeof to.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return {};
  return Wire(std::move(socket));
}

bool Wire::send(Bytes bytes, const std::vector<int>& pass, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  std::vector<int> left = pass;
  while (!bytes.empty()) {
    if (!socket_) return false;
    const ssize_t sent = send_with(descriptor(), bytes, left);
    if (sent > 0) {
      left.clear();
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait(descriptor(), POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

std::size_t Wire::send_some(Bytes bytes) {
  const ssize_t sent = socket_ ? send_with(descriptor(), bytes, {}) : -1;
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

std::optional<Buffer> Wire::read(std::size_t bytes, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  Buffer out(bytes);
  for (std::size_t got = 0; got < bytes;) {
    if (!socket_) return {};
    const ssize_t n = ::recv(descriptor(), out.data() + got, bytes - got, MSG_DONTWAIT);
    if (n > 0) {
      got += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return {};
    } else if (!wait(descriptor(), POLLIN, deadline)) {
      return {};
    }
  }
  return out;
}

std::optional<ControlFrame> Wire::read_frame(milliseconds patience) {
  const auto bytes = read(FrameHeader::kBytes, patience);
  if (!bytes) return {};
  const auto header = decode_frame_header(*bytes);
  if (!header.ok() || header->size_bytes > limits::kMessageBytesMax) return {};
  auto body = read(header->size_bytes, patience);
  if (!body) return {};
  return ControlFrame{*header, std::move(*body)};
}

std::optional<BulkHeader> Wire::read_bulk(milliseconds patience) {
  const auto bytes = read(BulkHeader::kBytes, patience);
  if (!bytes) return {};
  const auto header = decode_bulk_header(*bytes);
  if (!header.ok()) return {};
  return *header;
}

bool Wire::ends_within(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  std::array<std::byte, 64u << 10> thrown_away;
  while (socket_) {
    const ssize_t n = ::recv(descriptor(), thrown_away.data(), thrown_away.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (n < 0 && !wait(descriptor(), POLLIN, deadline)) return false;
    if (Clock::now() > deadline) return false;
  }
  return true;
}

Buffer frame(FrameKind kind, Bytes body) {
  const auto header = encode_frame_header({kind, static_cast<std::uint32_t>(body.size()), 0});
  Buffer out(header.begin(), header.end());
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

Buffer frame(const BulkHeader& header, Bytes data) {
  const auto encoded = encode_bulk_header(header);
  Buffer out(encoded.begin(), encoded.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

}  // namespace precis::hostile
