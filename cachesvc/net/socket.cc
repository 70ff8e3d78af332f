#include "cachesvc/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace precis {
namespace {

using Io = Socket::Io;

constexpr std::size_t kRangesMax = 64;  // per call to the kernel

// A vanished host sends nothing. After these probes, its silence counts as its end (25 s).
constexpr int kKeepAliveIdleSeconds = 10;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

Io ended(const std::string& how) {
  return {Io::State::kEnded, 0, Status::unavailable("the peer " + how)};
}

// Converts the result of a call to the kernel.
Io result(ssize_t moved, bool reading) {
  if (moved > 0) return {Io::State::kMoved, static_cast<std::size_t>(moved), {}};
  if (moved == 0 && reading) return ended("closed the connection");
  if (moved == 0 || errno == EAGAIN || errno == EWOULDBLOCK) return {Io::State::kWait, 0, {}};
  return ended(std::string("is gone (") + std::strerror(errno) + ")");
}

template <typename Call>
ssize_t uninterrupted(Call call) {
  ssize_t moved = 0;
  do {
    moved = call();
  } while (moved < 0 && errno == EINTR);
  return moved;
}

union ControlBytes {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

}  // namespace

Socket::Socket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
  const int fd = descriptor_.get();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  int domain = 0;
  socklen_t size = sizeof domain;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  is_unix_ = domain == AF_UNIX;
  if (is_unix_) return;
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

Io Socket::read(MutableBytes into, Descriptor* passed) {
  if (passed == nullptr || !is_unix_) {
    return result(
        uninterrupted([&] { return ::recv(descriptor(), into.data(), into.size(), MSG_DONTWAIT); }),
        /*reading=*/true);
  }
  iovec part{into.data(), into.size()};
  ControlBytes control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t got = uninterrupted(
      [&] { return ::recvmsg(descriptor(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    // Alignment makes the space for one descriptor large enough for two.
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = count; i > 0; --i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + (i - 1) * sizeof fd, sizeof fd);
      *passed = Descriptor(fd);
    }
  }
  return result(got, /*reading=*/true);
}

Io Socket::write(std::span<const Bytes> ranges, int pass) {
  std::array<iovec, kRangesMax> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  for (const Bytes range : ranges) {
    if (message.msg_iovlen == kRangesMax) break;
    if (range.empty()) continue;
    parts[message.msg_iovlen++] = {const_cast<std::byte*>(range.data()), range.size()};
  }
  ControlBytes control{};
  if (pass >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &pass, sizeof pass);
  }
  return result(
      uninterrupted([&] { return ::sendmsg(descriptor(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); }),
      /*reading=*/false);
}

void let_pass_descriptors(int socket, bool on) {
  set_option(socket, SOL_SOCKET, SO_PASSRIGHTS, on ? 1 : 0);
}

void Socket::shut_down() { ::shutdown(descriptor(), SHUT_RDWR); }

PeerName peer_name(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return {"unknown", "unknown"};
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {std::string(text.data()) + ":" + std::to_string(ntohs(v4.sin_port)), text.data()};
  }
  if (storage.ss_family == AF_INET6) {
    auto v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    const std::string whole = text.data();
    // A host may own a whole /64 of addresses, so these count as one address.
    if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) std::memset(&v6.sin6_addr.s6_addr[8], 0, 8);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return {"[" + whole + "]:" + std::to_string(ntohs(v6.sin6_port)), text.data()};
  }
  ucred who{};
  size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return {"unix", "unix"};
  }
  const std::string uid = "uid " + std::to_string(who.uid);
  return {"unix: " + uid + ", pid " + std::to_string(who.pid), uid};
}

}  // namespace precis
