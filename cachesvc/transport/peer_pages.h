// What a server has mapped of one client's memory: each Pages when first asked for, until the
// client drops them, the link ends, or there is too much of it. On the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "cachesvc/base/executor.h"
#include "cachesvc/transport/host_copy.h"

namespace precis {

class PeerPages {
 public:
  // Of one client. The longest unused gives way to what is beyond. To be written to it gives way
  // for good: sealed as it is, it is mapped to read the next time.
  struct Limits {
    // The client's pool keeps a few; the rest are prefixes in use. Those of all connections there
    // may be are half the mappings that Linux allows a process.
    std::size_t count = 32;
    std::size_t bytes = std::size_t{64} << 30;  // of addresses: the memory is the client's
  };

  // What gives way is unmapped on `unmapping`, which outlives this: a large mapping takes long.
  PeerPages(std::shared_ptr<const HostPeer> peer, Executor& unmapping)
      : PeerPages(std::move(peer), unmapping, Limits{}) {}
  PeerPages(std::shared_ptr<const HostPeer> peer, Executor& unmapping, Limits limits)
      : peer_(std::move(peer)), unmapping_(unmapping), limits_(limits) {}
  ~PeerPages() { clear(); }
  PeerPages(const PeerPages&) = delete;
  PeerPages& operator=(const PeerPages&) = delete;

  // The pages called `id`, which are all `size_bytes` of the file behind the peer's `descriptor`.
  // Null where they cannot be mapped, or are larger than the limit. Shared with the copies under
  // way, which may outlast the drop.
  std::shared_ptr<const Pages> find(std::uint64_t id, std::uint32_t descriptor,
                                    std::uint64_t size_bytes);
  void drop(std::uint64_t id);
  void clear();

 private:
  struct Mapped {
    std::uint64_t id;
    std::size_t size_bytes;
    std::shared_ptr<const Pages> pages;  // null: could not be mapped, and is not tried again
  };
  void let_go(std::list<Mapped>::iterator mapped);

  const std::shared_ptr<const HostPeer> peer_;  // shared with the copies under way
  Executor& unmapping_;
  const Limits limits_;
  std::list<Mapped> mapped_;  // the longest unused first
  std::size_t mapped_bytes_ = 0;
};

}  // namespace precis
