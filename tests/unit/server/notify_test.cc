#include "cachesvc/base/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>

#include "cachesvc/base/descriptor.h"

namespace precis {
namespace {

// Listens as systemd does, under an abstract name.
Descriptor listening(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  return socket;
}

std::string received(const Descriptor& socket) {
  char text[256];
  const ssize_t size = ::recv(socket.get(), text, sizeof text, MSG_DONTWAIT);
  return size < 0 ? "nothing" : std::string(text, static_cast<std::size_t>(size));
}

}  // namespace

TEST_CASE("what a service tells systemd arrives at an abstract name", "[unit][server]") {
  const std::string name = "precis-notify-" + std::to_string(::getpid());
  const Descriptor systemd = listening(name);
  const Notifier notifier("@" + name);
  notifier.ready();
  CHECK(received(systemd) == "READY=1");
  notifier.reloading();
  CHECK_THAT(received(systemd), Catch::StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  notifier.stopping();
  CHECK(received(systemd) == "STOPPING=1");
}

TEST_CASE("nothing is told where nobody asked, and nobody who is not there", "[unit][server]") {
  Notifier("").ready();
  Notifier("@precis-notify-nobody").ready();
  Notifier(std::string(200, 'x')).ready();
  SUCCEED();
}

}  // namespace precis
