// A store whose reads can fail or block.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/forwarding_store.h"

namespace precis::testing {

// Counts reads. Reads of a layer fail after fail(), and block after hold(), until mend().
class DoubtfulStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  void fail(const NewSegment& segment, std::uint32_t layer, Status status) {
    const std::lock_guard lock(mutex_);
    failing_[payload_key(segment.row.id, layer)] = std::move(status);
  }
  void hold(const NewSegment& segment, std::uint32_t layer) {
    const std::lock_guard lock(mutex_);
    held_ = payload_key(segment.row.id, layer);
  }
  void mend() {
    const std::lock_guard lock(mutex_);
    failing_.clear();
    held_.reset();
    changed_.notify_all();
  }
  int reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  // From now on the store says that it has nothing of any segment.
  void deny() { denies_ = true; }
  std::uint64_t held_bytes(const std::string& prefix) override {
    return denies_ ? 0 : ForwardingStore::held_bytes(prefix);
  }

  Status read_into(const std::string& key, MutableBytes into) override {
    {
      std::unique_lock lock(mutex_);
      ++reads_;
      changed_.wait(lock, [&] { return held_ != key; });
      if (const auto failing = failing_.find(key); failing != failing_.end()) {
        return failing->second;
      }
    }
    return ForwardingStore::read_into(key, into);
  }

 private:
  std::atomic<bool> denies_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, Status> failing_;
  std::optional<std::string> held_;
  int reads_ = 0;
};

}  // namespace precis::testing
