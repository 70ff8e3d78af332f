// A peer that a test kills: registers memory, prints its address and key in hex, and waits.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cachesvc/net/rdma/rdma.h"

namespace {

void say(const std::string& bytes) {
  for (const char byte : bytes) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
}

}  // namespace

int main() {
  auto device = precis::RdmaDevice::open_software(nullptr);
  if (!device.ok()) return 77;
  std::vector<std::byte> memory(64u << 20, std::byte{0x5a});
  const auto known = (*device)->register_memory(memory, precis::MemorySpace::kHost);
  const auto peer = (*device)->make_peer();
  if (!known.ok() || !peer.ok()) return 1;
  say((*peer)->address().device);
  say((*peer)->address().endpoint);
  say((*known)->key());
  std::printf("%llu\n",
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(memory.data())));
  std::fflush(stdout);
  ::pause();
}
