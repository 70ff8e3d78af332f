// A port of the loopback for a server that a test starts.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis::testing {

// Nobody uses it now. Another process could take it first, but the kernel gives out other ports
// before.
inline std::string free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  PRECIS_CHECK(::bind(socket.get(), any, size) == 0);
  PRECIS_CHECK(::getsockname(socket.get(), any, &size) == 0);
  return std::to_string(ntohs(address.sin_port));
}

}  // namespace precis::testing
