// A get under way. The loop hands it what the server says; that is checked by the loop itself while
// it is little, then by who waits for the layer, and by a verifying thread where nobody does, which
// who waits for all of it helps.
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

// Shared by the Prefix, the request while the server may write to the buffer, and checks under way.
class GetState final : public ReplySink, public std::enable_shared_from_this<GetState> {
 public:
  GetState(GetPlan plan, std::unique_ptr<BufferPool::Buffer> buffer, Executor& verifier);

  // The loop's thread.
  void on_layer(msg::LayerServed served) override;
  void on_reply(Result<msg::ReplyBody> reply) override;

  // Any thread.
  const GetPlan& plan() const { return plan_; }
  // drive(done) brings what comes, until done() or as long as it can: where this thread hears of
  // the layer itself, no other one has to wake it. done() comes true by what is brought.
  using Drive = std::function<void(const std::function<bool()>& done)>;
  Status wait_layer(std::uint32_t layer, const Drive& drive);
  Status wait();
  bool settled(std::uint32_t layer) const;
  bool finished() const;
  bool over() const;  // wait() would not
  // All of it is checked by the loop's thread.
  bool small() const { return plan_.capacity_bytes <= kInlineBytesMax; }
  // Up to so many bytes of one get are checked by the loop itself: that takes no longer than a
  // thread takes to wake.
  static constexpr std::uint64_t kInlineBytesMax = 256u << 10;
  // What tells one cut of one put from another: of a layer that arrived.
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

  // None if there is none, or another thread has taken it.
  std::optional<msg::LayerServed> take(std::uint32_t layer);
  // Under mutex_.
  bool is_behind() const;
  msg::LayerServed take_first();
  Unchecked::iterator find_unchecked(std::uint32_t layer);
  void check(const msg::LayerServed& served);
  void settle(const msg::LayerServed& served);
  Result<ServedLayout> place(const msg::LayerServed& served);
  void finish();
  Status missing() const;
  void fail(const Status& status);

  // Constant after construction.
  const GetPlan plan_;
  const std::unique_ptr<BufferPool::Buffer> buffer_;
  Executor& verifier_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();

  // The loop's thread.
  std::uint32_t heard_ = 0;        // LayerServed so far
  std::uint64_t heard_bytes_ = 0;  // that they speak of

  // Guarded by placing_; read without it once all is checked.
  std::mutex placing_;
  std::vector<bool> placed_;                               // [num_layers]
  std::vector<std::uint64_t> entries_left_;                // [num_links]
  std::vector<std::pair<std::size_t, std::size_t>> used_;  // [offset, end) of each layer served

  // Guarded by mutex_. A layer is settled once and stays so.
  struct Layer {
    bool heard = false;  // of it, by the loop: what is left is for threads
    bool settled = false;
    Status status;
    std::vector<HeadEntries> heads;
    Served served;
    int waiting = 0;  // for it, threads
  };
  mutable std::mutex mutex_;
  mutable std::condition_variable settled_;  // a layer
  mutable std::condition_variable over_;     // the whole get, one way or the other
  std::vector<Layer> layers_;
  Unchecked unchecked_;
  std::size_t checking_ = 0;                     // unchecked, or being checked
  std::optional<Result<msg::ReplyBody>> reply_;  // seen to once all is checked
  bool finished_ = false;                        // the server has answered
  Status outcome_;  // not ok as soon as the whole get is known to have failed
  std::uint64_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace precis
