// Payload in memory. A value is written when stage() returns, and its memory is reclaimed when the
// payload is opened again: an owner's rows may come back until then.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/store/payload_store.h"

namespace precis::testing {

// The memory, which outlives the stores that are opened over it. Thread-safe.
class MemoryValues {
 public:
  using Value = std::shared_ptr<const std::vector<std::byte>>;
  std::unique_ptr<MemoryValues> copy() const;
  // At most this many live bytes: values past that are kOutOfSpace.
  void set_capacity(std::uint64_t bytes);
  // Removes all other values.
  void keep_only(std::span<const Extent> live);
  Result<Extent> add(Bytes value);
  Value find(const Extent& place) const;
  void free(const Extent& place);
  std::uint64_t live_bytes() const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_. A value's place has its number as `file`.
  std::map<std::uint32_t, Value> values_;
  std::uint32_t next_ = 1;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t capacity_ = std::numeric_limits<std::uint64_t>::max();
};

class MemoryPayload final : public PayloadStore {
 public:
  // `memory` outlives it and its values.
  MemoryPayload(MemoryValues& memory, std::span<const Extent> live,
                std::unique_ptr<Executor> thread = std::make_unique<ThreadExecutor>("payload", 1))
      : memory_(memory), thread_(std::move(thread)) {
    memory_.keep_only(live);
  }
  void attach(PayloadOwner&) override {}
  std::shared_ptr<StagedValue> stage(SharedBytes value, bool makes_room) override;
  void then(std::function<void()> fn, std::weak_ptr<const void> fn_owner) override;
  // Runs what then() posted on the calling thread.
  void settle() override;
  Status sync() override { return {}; }
  std::unique_ptr<const PinnedValue> pin(const Extent& place, Pinning pinning) const override;
  // Freed values stay readable in any case.
  std::unique_ptr<PayloadHold> hold() override {
    struct Hold final : PayloadHold {
      void release(std::uint32_t) override {}
      Status check() const override { return {}; }
    };
    return std::make_unique<Hold>();
  }
  void free(std::span<const Extent> places) override;
  bool reclaim(bool, const std::stop_token&) override { return false; }
  PayloadStats stats() const override { return {0, memory_.live_bytes(), 0}; }
  Status check() override { return {}; }

 private:
  struct Posted {
    std::function<void()> fn;
    std::weak_ptr<const void> owner;
  };
  bool run_one();

  MemoryValues& memory_;
  std::mutex running_;  // held while a posted function runs
  std::mutex mutex_;
  std::deque<Posted> posted_;         // guarded by mutex_
  std::unique_ptr<Executor> thread_;  // last: it uses all of the above
};

}  // namespace precis::testing
