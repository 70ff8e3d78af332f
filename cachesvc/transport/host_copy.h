// Bulk bytes between two processes of one host, copied once by the kernel (process_vm_readv and
// process_vm_writev): truly one-sided, so the client need not run, and at the speed of memory.
//
// The client keeps a HostWindow: a few words that the server's process may read and write. First a
// challenge: the server proves with it that the process it was told of is the peer and lets it in.
// A client that names somebody else's process cannot write the challenge there, so it can never
// make a privileged server read or write for it. Then one slot per exposed region, by which the
// client can take memory back although the server copies without asking:
//
//   server: active = 1; is it still open? copy; active = 0         client: open = 0; wait for
//   active = 0
//
// or for the server's end of the TCP connection, which it closes only when it has let go of
// everything, as its kernel does when it dies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cachesvc/transport/pages.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

using HostChallenge = std::array<std::byte, 16>;
using HostId = std::array<std::byte, 16>;

// Names the running kernel, the same in all its containers: its boot id. Zeros where it tells none.
HostId this_host();

// The layout is shared by two processes.
struct HostSlot {
  std::atomic<std::uint64_t> open{0};    // the id of the exposed region, 0 for none; client's
  std::atomic<std::uint64_t> active{0};  // 1 while the server copies; server's
};
static_assert(sizeof(HostSlot) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

// Client side, one per link. Shared by the link and its Exposures. claim() and release(): any
// thread.
class HostWindow {
 public:
  HostWindow();
  // Waits for the server to let go, a bound long; leaves the memory behind rather than to its
  // writes.
  ~HostWindow();
  HostWindow(const HostWindow&) = delete;
  HostWindow& operator=(const HostWindow&) = delete;

  std::uint64_t challenge_address() const;
  void answer(const HostChallenge& challenge);
  // The link's TCP socket, of which the window keeps its own descriptor.
  void watch(int socket);

  HostSlot* claim(std::uint64_t region_id);
  // Returns when the server has let go of the region.
  void release(HostSlot* slot);

 private:
  struct Words {
    HostChallenge challenge{};
    std::deque<HostSlot> slots;  // their addresses stay
  };
  bool server_let_go() const;

  std::unique_ptr<Words> words_;
  std::mutex mutex_;
  std::vector<HostSlot*> free_;
  int socket_ = -1;
};

// Server side: a client's process that has proved itself. Thread-safe.
class HostPeer {
 public:
  // kUnsupported if that process is not on this host, not the peer's, or not ours to read.
  static Result<std::shared_ptr<HostPeer>> prove(std::uint32_t pid, std::uint64_t challenge_address,
                                                 const HostChallenge& challenge);
  ~HostPeer();
  HostPeer(const HostPeer&) = delete;
  HostPeer& operator=(const HostPeer&) = delete;

  // Between local ranges, one after the other, and the peer's memory from `remote`. kUnavailable if
  // the process is gone, kInvalidArgument if it has no such memory.
  Status read(std::span<const MutableBytes> into, std::uint64_t remote) const;
  Status write(std::span<const MutableBytes> from, std::uint64_t remote) const;
  // What stands behind one of the peer's descriptors, mapped (pages.h). kUnsupported where the
  // system cannot tell, kInvalidArgument for what may not be mapped.
  Result<std::unique_ptr<Pages>> map(std::uint32_t descriptor, std::size_t size_bytes) const;

  int exit_descriptor() const { return pidfd_; }  // readable once the process has ended

 private:
  HostPeer(std::uint32_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  template <typename Call>
  Status copy(Call call, std::span<const MutableBytes> local, std::uint64_t remote) const;

  const std::uint32_t pid_;
  const int pidfd_;  // what keeps the number from meaning another process unnoticed
};

}  // namespace precis
