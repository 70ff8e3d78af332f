// A socket that listens on the loopback, for small servers of tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace precis::testing {

// Binds the socket to any free port of 127.0.0.1, lets it listen, and returns the port. A failure
// fails the test.
inline std::uint16_t listen_on_loopback(int listener, int backlog) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listener, any, size) == 0);
  REQUIRE(::listen(listener, backlog) == 0);
  REQUIRE(::getsockname(listener, any, &size) == 0);
  return ntohs(address.sin_port);
}

}  // namespace precis::testing
