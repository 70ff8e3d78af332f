// The means of bulk transfer within one host: a copy within this process where the client's memory
// is mapped here (peer_pages.h), else one that the kernel makes between the two (host_copy.h).
// Large chunks on threads of their own and several at once. What is mapped need not be copied to be
// read.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cachesvc/base/executor.h"
#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/host_copy.h"
#include "cachesvc/transport/peer_pages.h"
#include "cachesvc/transport/ucx_link.h"

namespace precis {

class UcxHostBulk final : public BulkMeans {
 public:
  // `copiers`, of so many threads, outlives it.
  UcxHostBulk(UcxLink& link, std::shared_ptr<HostPeer> peer, Executor& copiers,
              unsigned copy_threads);
  BulkQueue::Limits limits() const override;
  void move(BulkChunk chunk, BulkQueue::Ended ended) override;
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override;
  void drop_pages(std::uint64_t id) override { pages_.drop(id); }
  void keep_until_quiet(std::unique_ptr<PrefaceSocket> socket) override;
  std::string name() const override { return "host copy"; }

 private:
  // Shared with the copies under way, which may outlive the link.
  struct State {
    std::shared_ptr<HostPeer> peer;
    std::map<std::uint64_t, std::size_t> entered;  // copies under way per slot
    std::unique_ptr<PrefaceSocket> socket;         // of the ended link, closed when none is left

    Status enter(std::uint64_t slot, std::uint64_t region);
    void leave(std::uint64_t slot);
    // These from any thread. kNotFound if the region is no longer exposed.
    Status check_open(std::uint64_t slot, std::uint64_t region) const;
    // `region`: all of it, empty where it is not mapped.
    Status copy(const BulkChunk& chunk, MutableBytes region) const;
  };
  // A region as far as it is mapped: empty where it is not.
  struct Mapped {
    std::shared_ptr<const Pages>
        pages;  // shared with who uses it, who may outlast the client's drop
    MutableBytes bytes;
  };
  class InPlace;
  class SharedCopy;
  Mapped find(const RegionKey& key, std::uint64_t size_bytes, BulkTransfer::Kind kind);

  UcxLink& link_;
  Executor& copiers_;
  const unsigned copy_threads_;
  std::shared_ptr<State> state_;
  PeerPages pages_;
  std::unique_ptr<EventLoop::Watch> exit_watch_;
};

}  // namespace precis
