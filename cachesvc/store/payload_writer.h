// Writes payload into extent files on its own thread, in the order of arrival. Values that wait
// together are written together. A put's layers are written while later layers arrive, so its
// commit waits only for the last ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/payload_store.h"

namespace precis {

// Thread-safe.
class PayloadWriter {
 public:
  // `files` outlives the writer, and the writer all its values. `freed` is called, on any thread,
  // after an unused value has freed its space.
  PayloadWriter(ExtentFiles& files, std::function<void()> freed);
  ~PayloadWriter();  // writes all added values first
  PayloadWriter(const PayloadWriter&) = delete;
  PayloadWriter& operator=(const PayloadWriter&) = delete;

  // Adds a value. If all its handles are gone when its turn comes, it is not written.
  std::shared_ptr<StagedValue> add(SharedBytes value, WriteUse use = WriteUse::kPayload);
  // Runs `fn` on the writer's thread once all values added before are written or failed; skips `fn`
  // if `owner` is gone by then.
  void then(std::function<void()> fn, std::weak_ptr<const void> owner);

 private:
  class Value;
  // A value, or a function with its owner.
  struct Item {
    std::weak_ptr<Value> value;
    std::function<void()> fn;
    std::weak_ptr<const void> owner;
    bool is_dead() const { return fn ? owner.expired() : value.expired(); }
  };
  void push(Item item);
  void sweep();  // callers hold mutex_
  void run(const std::stop_token& stop);

  ExtentFiles& files_;
  const std::function<void()> freed_;
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  // Guarded by mutex_.
  std::deque<Item> queue_;
  std::size_t sweep_at_ = 0;  // queue length at which dead items are removed
  std::jthread thread_;       // last: it uses all of the above
};

}  // namespace precis
