// A library that a node of ./dev torture --cluster --ceph loads before all others (LD_PRELOAD). It
// redirects the node's connections to Ceph to relays, because librados takes the addresses of Ceph
// from Ceph itself and not from a setting. PRECIS_DETOUR names an address of the loopback, at which
// relays have the same ports as Ceph, and PRECIS_DETOUR_MONITOR the port of Ceph's monitor.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "tests/torture/ceph_ports.h"

extern "C" int connect(int fd, const sockaddr* to, socklen_t size) {
  using Connect = int (*)(int, const sockaddr*, socklen_t);
  static const auto original = reinterpret_cast<Connect>(::dlsym(RTLD_NEXT, "connect"));
  const char* const detour = std::getenv("PRECIS_DETOUR");
  const char* const monitor = std::getenv("PRECIS_DETOUR_MONITOR");
  sockaddr_in address{};
  if (detour == nullptr || monitor == nullptr || to == nullptr || to->sa_family != AF_INET ||
      size < sizeof address) {
    return original(fd, to, size);
  }
  std::memcpy(&address, to, sizeof address);
  const int port = ntohs(address.sin_port);
  const bool is_osd =
      port >= precis::torture::kOsdPortFirst && port <= precis::torture::kOsdPortLast;
  if (is_osd || port == std::atoi(monitor)) ::inet_pton(AF_INET, detour, &address.sin_addr);
  return original(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}
