// Moves bulk bytes over the connection's bulk socket: works everywhere, and reaches host memory on
// both sides. The socket belongs to a loop of its own, so that bulk never stands before control.
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
  bool supports(MemorySpace local, const RemoteRegion& remote) const override {
    return local == MemorySpace::kHost && remote.space == MemorySpace::kHost;
  }
  BulkLimits limits() const override;
  void post(BulkChunk chunk, Ended ended) override;
  void cancel(const Status& why) override;

  // The bulk loop's: what the stream has received. on_frame() takes kData and kEnd.
  Status on_frame(const BulkHeader& header);
  DataStream::Place place(const BulkHeader& header, std::size_t done);
  void on_data(const BulkHeader& header);

 private:
  struct Pull {
    Ended ended;
    std::size_t size_bytes;
    bool begun = false, whole = false;  // its data
  };
  void finish(std::uint64_t id, Status status);

  EventLoop& control_;
  const std::shared_ptr<DataStream> stream_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Pull> pulls_;  // under way, guarded by mutex_
  Status canceled_;                                // guarded by mutex_
  // Where pulls land, under the same ids: taking one away waits until nothing is received to it.
  const std::shared_ptr<RegionTable> places_ = std::make_shared<RegionTable>();
};

}  // namespace precis
