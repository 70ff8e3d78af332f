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
#include <optional>
#include <thread>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/store.h"

namespace precis {

// Thread-safe.
class PayloadWriter {
 public:
  // A value in the queue. Its destruction frees its space unless it was kept.
  class Value;

  // `files` and everything that `freed` uses outlive the writer and all its values. `freed` is
  // called, on any thread, after an unused value has freed its space.
  PayloadWriter(ExtentFiles& files, std::function<void()> freed);
  ~PayloadWriter();  // writes all added values first
  PayloadWriter(const PayloadWriter&) = delete;
  PayloadWriter& operator=(const PayloadWriter&) = delete;

  // Adds a value. If all its handles are gone when its turn comes, it is not written.
  std::shared_ptr<Value> add(SharedBytes value, WriteUse use = WriteUse::kPayload);
  // Adds a failed value again.
  void add_again(const std::shared_ptr<Value>& value);
  // Runs `fn` on the writer's thread once all values added before are written or failed; skips `fn`
  // if `owner` is gone by then.
  void then(std::function<void()> fn, std::weak_ptr<const void> owner);
  void wait_for_all();

 private:
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
  const std::shared_ptr<const std::function<void()>> freed_;  // shared with the values
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  // Guarded by mutex_.
  std::deque<Item> queue_;
  std::size_t sweep_at_ = 0;  // queue length at which dead items are removed
  std::jthread thread_;       // last: it uses all of the above
};

class PayloadWriter::Value final : public StagedValue {
 public:
  Value(ExtentFiles& files, std::shared_ptr<const std::function<void()>> freed, SharedBytes value,
        WriteUse use)
      : files_(files), freed_(std::move(freed)), use_(use), value_(std::move(value)) {}
  ~Value() override;
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  Status wait() override;
  bool over() const;  // written or failed
  bool has_failed() const;
  std::uint64_t size_bytes() const { return size_bytes_; }
  // Its bytes in memory, unless they are already written.
  std::optional<SharedBytes> unwritten() const;
  // Requires that the value is written.
  Extent extent() const;
  // A row refers to the value now: the store, not this object, frees its space.
  void keep();

 private:
  friend class PayloadWriter;
  void begin();
  Bytes bytes() const { return value_.bytes; }  // valid until over()
  void end(Result<Extent> written);

  ExtentFiles& files_;
  const std::shared_ptr<const std::function<void()>> freed_;
  const WriteUse use_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_. The writer reads `value_` without it, as only the writer changes `value_`.
  SharedBytes value_;
  const std::uint64_t size_bytes_ = value_.bytes.size();
  std::optional<Result<Extent>> written_;
  bool kept_ = false;
};

}  // namespace precis
