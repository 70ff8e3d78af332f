// Moves bulk bytes by a copy within this process, to and from memory files that the client made and
// passed over its Unix socket. The client need not run meanwhile, and what is mapped need not be
// copied to be read.
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

// What one client has shared. Thread-safe.
class SharedBuffers {
 public:
  // `unmapping` outlives this: a large mapping takes long to unmap.
  explicit SharedBuffers(Executor& unmapping) : unmapping_(unmapping) {}
  ~SharedBuffers() { clear(); }
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  // Maps buffer `id`, all `size_bytes` of `file`. The one unused for longest goes where there would
  // be more than limits::kSharedBuffersMax or kSharedBytesMax. Errors as Pages::adopt(), and
  // kInvalidArgument for an id that is taken or a size above the limit.
  Status add(std::uint64_t id, std::uint64_t size_bytes, Descriptor file);
  void remove(std::uint64_t id);
  // Null where the id is not known. Shared with what is under way on it.
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
  std::list<Buffer> buffers_;  // guarded by mutex_, as all below; the longest unused first
  std::shared_ptr<const Pages> window_;
  std::size_t bytes_ = 0;
};

class SharedMover final : public Mover {
 public:
  // `copiers` outlives it. `stream` is kept open until no region is in use any more.
  SharedMover(EventLoop& control, std::shared_ptr<DataStream> stream,
              std::shared_ptr<SharedBuffers> buffers, Executor& copiers);

  const char* name() const override { return "shared"; }
  bool supports(MemorySpace local, const RemoteRegion& remote) const override {
    return local == MemorySpace::kHost && find(remote) != nullptr;
  }
  BulkLimits limits() const override;
  void post(BulkChunk chunk, Ended ended) override;
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& remote) override;
  void cancel(const Status& why) override;

 private:
  class Use;
  // The pages that the region lies in; null where they are not mapped.
  std::shared_ptr<const Pages> find(const RemoteRegion& remote) const;
  // A region in use: kNotFound if it is not open any more, or is not mapped.
  Result<std::shared_ptr<Use>> use(const RemoteRegion& remote) const;

  EventLoop& control_;
  const std::shared_ptr<DataStream> stream_;
  const std::shared_ptr<SharedBuffers> buffers_;  // shared with the bulk loop, which fills it
  Executor& copiers_;
  Status canceled_;
};

}  // namespace precis
