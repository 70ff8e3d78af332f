// A port of the loopback for a server that a test starts.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdint>
#include <mutex>
#include <random>
#include <set>
#include <string>

#include "cachesvc/base/descriptor.h"

namespace precis::testing {

// A port that nobody uses now and that no earlier call has returned. The kernel gives these ports
// to no connection, because by default the ports of connections begin at 32,768. So a server that
// is killed finds its port free again.
inline std::string free_port() {
  constexpr std::uint16_t kFirst = 10'000, kLast = 32'000;
  static std::mutex mutex;
  static std::set<std::uint16_t> given;
  static std::mt19937 random(std::random_device{}());
  const std::lock_guard lock(mutex);
  for (;;) {
    const auto port = std::uniform_int_distribution<std::uint16_t>(kFirst, kLast)(random);
    if (given.contains(port)) continue;
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      continue;
    }
    given.insert(port);
    return std::to_string(port);
  }
}

}  // namespace precis::testing
