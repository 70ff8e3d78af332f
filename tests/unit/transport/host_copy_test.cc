#include "cachesvc/transport/host_copy.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

namespace precis {
namespace {

HostChallenge challenge(int fill) {
  HostChallenge c;
  c.fill(static_cast<std::byte>(fill));
  return c;
}

TEST_CASE("a process proves itself by its answer to the challenge", "[transport]") {
  HostWindow window;
  window.answer(challenge(7));
  const auto pid = static_cast<std::uint32_t>(getpid());
  CHECK(HostPeer::prove(pid, window.challenge_address(), challenge(7)).ok());
  CHECK(HostPeer::prove(pid, window.challenge_address(), challenge(8)).status().code() ==
        StatusCode::kUnsupported);
}

TEST_CASE("no other process can be named", "[transport]") {
  HostWindow window;
  window.answer(challenge(7));
  // A process whose memory does not hold the answer, processes that cannot exist, and no address.
  for (const std::uint32_t pid : {1u, 0u, 0x7fffffffu, 0xffffffffu}) {
    CAPTURE(pid);
    CHECK(HostPeer::prove(pid, window.challenge_address(), challenge(7)).status().code() ==
          StatusCode::kUnsupported);
  }
  CHECK(HostPeer::prove(static_cast<std::uint32_t>(getpid()), 8, challenge(7)).status().code() ==
        StatusCode::kUnsupported);
}

TEST_CASE("a copy gathers and scatters, and refuses memory that is not there", "[transport]") {
  HostWindow window;
  window.answer(challenge(1));
  const auto peer = HostPeer::prove(static_cast<std::uint32_t>(getpid()),
                                    window.challenge_address(), challenge(1));
  REQUIRE(peer.ok());
  std::vector<std::byte> there(3000, std::byte{5}), here(3000, std::byte{6});
  const std::vector<MutableBytes> ranges{MutableBytes(here).first(10),
                                         MutableBytes(here).subspan(1000, 2000)};
  REQUIRE((*peer)->write(ranges, reinterpret_cast<std::uintptr_t>(there.data())).ok());
  CHECK(there[2009] == std::byte{6});
  CHECK(there[2010] == std::byte{5});
  there[10] = std::byte{9};
  REQUIRE((*peer)->read(ranges, reinterpret_cast<std::uintptr_t>(there.data())).ok());
  CHECK(here[1000] == std::byte{9});
  CHECK((*peer)->read(ranges, 64).code() == StatusCode::kInvalidArgument);
}

TEST_CASE("taking a region back waits for the server to let go of it", "[transport]") {
  HostWindow window;
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  window.watch(sockets[0]);
  HostSlot* slot = window.claim(3);
  CHECK(slot->open == 3);
  slot->active = 1;
  std::atomic<bool> released{false};
  std::thread releasing([&] {
    window.release(slot);
    released = true;
  });
  while (slot->open != 0) std::this_thread::yield();
  CHECK_FALSE(released);  // active is still 1
  slot->active = 0;
  releasing.join();
  CHECK(window.claim(4) == slot);  // slots are used again
  // A server that is gone holds nothing, whatever its word says.
  slot->active = 1;
  close(sockets[1]);
  window.release(slot);
  close(sockets[0]);
}

}  // namespace
}  // namespace precis
