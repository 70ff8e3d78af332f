// A get in progress. The loop passes it the server's messages. Small layers are checked by the loop
// itself; others by the thread that waits for the layer, or by a verifying thread. A thread that
// waits for the whole get helps the verifying thread.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cachesvc/base/executor.h"
#include "client/src/buffer_pool.h"
#include "client/src/channel.h"
#include "client/src/get_plan.h"
#include "precis/served_layout.h"

namespace precis {

// Shared by the Prefix, by the request while the server may write to the buffer, and by running
// checks.
class GetState final : public ReplySink, public std::enable_shared_from_this<GetState> {
 public:
  GetState(GetPlan plan, std::unique_ptr<BufferPool::Buffer> buffer, Executor& verifier,
           const Clock& clock);

  // On the loop's thread.
  void on_layer(msg::LayerServed served) override;
  void on_reply(Result<msg::ReplyBody> reply) override;

  // Any thread.
  const GetPlan& plan() const { return plan_; }
  // drive(done) runs the loop, until done() or as long as it can: a thread that receives the layer
  // itself needs no other thread to wake it. done() becomes true by the messages that drive()
  // delivers.
  using Drive = std::function<void(const std::function<bool()>& done)>;
  Status wait_layer(std::uint32_t layer, const Drive& drive);
  Status wait();
  bool settled(std::uint32_t layer) const;
  bool finished() const;
  bool over() const;  // wait() would not block
  // The loop's thread checks all of it.
  bool small() const { return plan_.memory_bytes() <= kInlineBytesMax; }
  // Up to this many bytes of one get are checked by the loop itself: that takes no longer than
  // waking a thread.
  static constexpr std::uint64_t kInlineBytesMax = 256u << 10;
  // Identifies the put and the cut that an arrived layer came from.
  struct Served {
    std::vector<std::uint32_t> counts;
    std::vector<std::array<std::uint8_t, 16>> tail_checksums;
    bool operator==(const Served&) const = default;
  };
  Served served(std::uint32_t layer) const;
  HeadEntries head(std::uint32_t layer, std::uint32_t head) const;
  Plan counts() const;
  std::uint64_t bytes() const;
  double seconds() const;

 private:
  using Unchecked = std::deque<msg::LayerServed>;

  // Empty if there is no unchecked message, or another thread has taken it.
  std::optional<msg::LayerServed> take(std::uint32_t layer);
  // Callers hold mutex_ for is_behind(), take_first() and find_unchecked().
  bool is_behind() const;
  msg::LayerServed take_first();
  Unchecked::iterator find_unchecked(std::uint32_t layer);
  void check(const msg::LayerServed& served);
  void settle(const msg::LayerServed& served);
  struct Placed {
    ServedLayout layout;
    MutableBytes decoded;  // for the rows, if some are coded
  };
  Result<Placed> place(const msg::LayerServed& served);
  void finish();
  Status missing() const;
  void fail(const Status& status);

  // Constant after construction.
  const GetPlan plan_;
  const std::unique_ptr<BufferPool::Buffer> buffer_;
  Executor& verifier_;
  const Clock& clock_;
  const Clock::Time started_ = clock_.now();

  // Used on the loop's thread only.
  std::uint32_t heard_ = 0;        // number of LayerServed messages
  std::uint64_t heard_bytes_ = 0;  // the bytes they announce, and those of decoded rows

  // Guarded by placing_; read without it once all is checked.
  std::mutex placing_;
  std::size_t decoded_ = 0;   // bytes of the memory for decoded rows that layers have taken
  std::vector<bool> placed_;  // [num_layers]
  std::vector<std::uint64_t> entries_left_;                // [num_links]
  std::vector<std::pair<std::size_t, std::size_t>> used_;  // [offset, end) of each layer served

  // Guarded by mutex_, as all below. A layer is settled once and stays so.
  struct Layer {
    bool heard = false;  // the loop has received its message; the rest is done by other threads
    bool settled = false;
    Status status;
    std::vector<HeadEntries> heads;
    Served served;
    int waiting = 0;  // number of threads that wait for it
  };
  mutable std::mutex mutex_;
  mutable std::condition_variable settled_;  // a layer was settled
  mutable std::condition_variable over_;     // the whole get ended, with success or not
  std::vector<Layer> layers_;
  Unchecked unchecked_;
  std::size_t checking_ = 0;                     // messages that are unchecked or being checked
  std::optional<Result<msg::ReplyBody>> reply_;  // handled once all is checked
  bool finished_ = false;                        // the server answered, and all is checked
  Status outcome_;                               // not ok as soon as the whole get has failed
  std::uint64_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace precis
