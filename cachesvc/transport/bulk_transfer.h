// One pull or push in progress. Its bytes are split into chunks, and a transport moves several
// chunks at once by its own means. The completion runs when no chunk is in progress, so no memory
// of either side is in use by then. Used on the loop's thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class BulkTransfer;

struct BulkLimits {
  std::size_t chunk_bytes;
  std::size_t ranges_per_chunk;
  std::size_t chunks_under_way;
};

// The next piece. The ranges of `local`, one after another, correspond to the client's region from
// `offset` on.
struct BulkChunk {
  std::shared_ptr<BulkTransfer> transfer;  // shared by the queue and the chunks in progress
  std::vector<MutableBytes> local;
  std::uint64_t offset = 0;
  std::size_t size_bytes = 0;
};

class BulkTransfer {
 public:
  enum class Kind { kPull, kPush };

  // A pull writes the `local` ranges; a push only reads them. kInvalidArgument if a range is not
  // within `registration`, or the whole is not within `remote`.
  static Result<std::shared_ptr<BulkTransfer>> make(Kind kind, RemoteRegion remote,
                                                    std::uint64_t offset,
                                                    std::vector<MutableBytes> local,
                                                    const Registration& registration,
                                                    Completion done);

  Kind kind() const { return kind_; }
  const RemoteRegion& remote() const { return remote_; }
  const Registration& registration() const { return registration_; }

 private:
  friend class BulkQueue;
  BulkTransfer(Kind kind, RemoteRegion remote, std::uint64_t offset,
               std::vector<MutableBytes> local, const Registration& registration, Completion done);
  bool has_next() const { return status_.ok() && next_range_ < local_.size(); }
  // Returns a chunk within `limits`. Call finish() once for every chunk.
  BulkChunk next(const std::shared_ptr<BulkTransfer>& self, const BulkLimits& limits);
  void finish(const Status& status);
  // After a failure no further chunk starts; the first error stays. Runs the completion if nothing
  // is left to move, also for a transfer of no bytes.
  void settle(const Status& status);

  const Kind kind_;
  const RemoteRegion remote_;
  std::uint64_t offset_;  // of the next chunk
  std::vector<MutableBytes> local_;
  const Registration& registration_;
  Completion done_;
  // The first range that is not wholly in chunks, and the bytes of it that are.
  std::size_t next_range_ = 0;
  std::size_t range_offset_ = 0;
  std::size_t under_way_ = 0;
  Status status_;
};

// Moves a chunk by a copy within this process. `there` is its part of the client's memory. Any
// thread.
void copy_chunk(const BulkChunk& chunk, MutableBytes there);

// Transfers in order, with a limit on the chunks in progress.
class BulkQueue {
 public:
  // Moves one chunk, then calls `ended` once, either at once or later on the loop.
  using Ended = std::function<void(Status)>;
  using Move = std::function<void(BulkChunk chunk, Ended ended)>;
  BulkQueue(const Clock& clock, BulkLimits limits, Move move);
  ~BulkQueue();
  BulkQueue(const BulkQueue&) = delete;
  BulkQueue& operator=(const BulkQueue&) = delete;

  void add(std::shared_ptr<BulkTransfer> transfer);
  // Starts nothing more. Queued transfers end with `status`; transfers in progress end when their
  // chunks do.
  void fail(const Status& status);
  // A queue that moves less than kStepBytes for a while is stalled.
  static constexpr std::uint64_t kStepBytes = 32u << 20;
  // Returns the last time at which a transfer started on the idle queue or another kStepBytes had
  // moved. None while nothing is in progress.
  std::optional<Clock::Time> stalled_since() const;

 private:
  // Shared by the queue and its chunks in progress, which may outlive the queue.
  struct State {
    const Clock& clock;
    BulkLimits limits;
    Move move;
    std::deque<std::shared_ptr<BulkTransfer>> queue;  // transfers with chunks to start
    std::size_t under_way = 0;
    Clock::Time last_step{};
    std::uint64_t moved_since = 0;  // bytes
    bool pumping = false;
    Status failed;
  };
  static void pump(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace precis
