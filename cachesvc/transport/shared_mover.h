// Moves bulk bytes by a copy within this process, to and from memory files that the client created
// and passed over its Unix socket. The client need not run meanwhile, and mapped memory can be read
// without a copy.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/pages.h"
#include "cachesvc/net/shared_window.h"
#include "cachesvc/transport/mover.h"

namespace precis {

// The buffers and the window that one client has shared. Thread-safe.
class SharedBuffers {
 public:
  // `unmapping` must outlive this object: a large mapping takes long to unmap.
  explicit SharedBuffers(Executor& unmapping) : unmapping_(unmapping) {}
  ~SharedBuffers() { clear(); }
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  // Maps buffer `id`, all `size_bytes` of `file`. Past limits::kSharedBuffersMax or
  // kSharedBytesMax, the least recently used buffers are unmapped. Errors as Pages::adopt(), and
  // kInvalidArgument for an id in use or a size above the limit.
  Status add(std::uint64_t id, std::uint64_t size_bytes, Descriptor file);
  void remove(std::uint64_t id);
  // Returns null for an unknown id. Transfers in progress share the pages.
  std::shared_ptr<const Pages> find(std::uint64_t id);
  std::shared_ptr<const Pages> window() const;
  void clear();

 private:
  struct Buffer {
    std::uint64_t id;
    std::shared_ptr<const Pages> pages;
  };
  void let_go(std::list<Buffer>::iterator buffer);

  Executor& unmapping_;
  mutable std::mutex mutex_;
  std::list<Buffer> buffers_;  // guarded by mutex_, as all below; least recently used first
  std::shared_ptr<const Pages> window_;
  std::size_t bytes_ = 0;
};

class SharedMover final : public Mover {
 public:
  // `copiers` must outlive the mover. The mover keeps `stream` open while a region is in use.
  SharedMover(EventLoop& control, std::shared_ptr<DataStream> stream,
              std::shared_ptr<SharedBuffers> buffers, Executor& copiers);

  const char* name() const override { return "shared"; }
  bool supports(const Registration& local, const RemoteRegion& remote) const override {
    return local.space() == MemorySpace::kHost && find(remote) != nullptr;
  }
  BulkLimits limits() const override;
  void post(BulkChunk chunk, Ended ended) override;
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& remote) override;
  void cancel(const Status& why) override;

 private:
  class Use;
  // Returns the pages that hold the region, or null if they are not mapped.
  std::shared_ptr<const Pages> find(const RemoteRegion& remote) const;
  // Puts a region in use. kNotFound if it is no longer open or not mapped.
  Result<std::shared_ptr<Use>> use(const RemoteRegion& remote) const;

  EventLoop& control_;
  const std::shared_ptr<DataStream> stream_;
  const std::shared_ptr<SharedBuffers> buffers_;  // shared with the bulk loop, which adds buffers
  Executor& copiers_;
  Status canceled_;
};

}  // namespace precis
