// Moves bulk bytes over the connection's bulk socket. It works everywhere and reaches host memory
// on both sides. The socket has its own loop, so that bulk bytes never delay control messages.
#pragma once

#include <mutex>
#include <unordered_map>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/data_stream.h"
#include "cachesvc/net/region_table.h"
#include "cachesvc/transport/mover.h"

namespace precis {

class StreamMover final : public Mover {
 public:
  StreamMover(EventLoop& control, std::shared_ptr<DataStream> stream);
  ~StreamMover() override { cancel(Status::canceled("the connection was closed on this side")); }

  const char* name() const override { return "stream"; }
  bool supports(const Registration& local, const RemoteRegion& remote) const override {
    return local.space() == MemorySpace::kHost && remote.space == MemorySpace::kHost;
  }
  BulkLimits limits() const override;
  void post(BulkChunk chunk, Ended ended) override;
  void cancel(const Status& why) override;

  // Called on the bulk loop with received frames. on_frame() handles kData and kEnd.
  Status on_frame(const BulkHeader& header);
  DataStream::Place place(const BulkHeader& header, std::size_t done);
  void on_data(const BulkHeader& header);

 private:
  struct Pull {
    Ended ended;
    std::size_t size_bytes;
    bool begun = false, whole = false;  // state of its data
  };
  void finish(std::uint64_t id, Status status);

  EventLoop& control_;
  const std::shared_ptr<DataStream> stream_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Pull> pulls_;  // in progress, guarded by mutex_
  Status canceled_;                                // guarded by mutex_
  // The targets of pulls, under the same ids. Removal of a target waits until nothing is being
  // received into it.
  const std::shared_ptr<RegionTable> places_;
};

}  // namespace precis
