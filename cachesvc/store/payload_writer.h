// Payload on its way into extent files: a thread of its own writes values in the order in which
// they came, those that wait for it side by side in one go. So a put's layers are on disk by the
// time its last one has come, and who commits waits for little.
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
  // A value that was added. Its end gives back its room unless it was kept.
  class Value;

  // `files` and what `freed` uses outlive it and all its values. `freed` is called, on any thread,
  // after a value that nothing means has given back its room.
  PayloadWriter(ExtentFiles& files, std::function<void()> freed);
  ~PayloadWriter();  // writes what was added
  PayloadWriter(const PayloadWriter&) = delete;
  PayloadWriter& operator=(const PayloadWriter&) = delete;

  // A value without handles by its turn is not written.
  std::shared_ptr<Value> add(SharedBytes value, WriteUse use = WriteUse::kPayload);
  // Once more, one that failed.
  void add_again(const std::shared_ptr<Value>& value);
  // Runs on the writer's thread when all that was added before is written or has failed; not
  // where `owner` is gone by then.
  void then(std::function<void()> fn, std::weak_ptr<const void> owner);
  void wait_for_all();

 private:
  // A value, or a function and its owner.
  struct Item {
    std::weak_ptr<Value> value;
    std::function<void()> fn;
    std::weak_ptr<const void> owner;
    bool is_dead() const { return fn ? owner.expired() : value.expired(); }
  };
  void push(Item item);
  void sweep();  // with mutex_ held
  void run(const std::stop_token& stop);

  ExtentFiles& files_;
  const std::shared_ptr<const std::function<void()>> freed_;  // shared with the values
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  // Guarded by mutex_.
  std::deque<Item> queue_;
  std::size_t sweep_at_ = 0;  // the length of queue_ from which dead items are looked for
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
  bool over() const;  // written, or failed
  bool has_failed() const;
  std::uint64_t size_bytes() const { return size_bytes_; }
  // Its bytes in memory, until they are written.
  std::optional<SharedBytes> unwritten() const;
  // Of one that is written.
  Extent extent() const;
  // A row means it: its room is the store's to give back.
  void keep();

 private:
  friend class PayloadWriter;
  void begin();
  Bytes bytes() const { return value_.bytes; }  // while it is not over
  void end(Result<Extent> written);

  ExtentFiles& files_;
  const std::shared_ptr<const std::function<void()>> freed_;
  const WriteUse use_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_, but that the writer alone changes `value_`.
  SharedBytes value_;
  const std::uint64_t size_bytes_ = value_.bytes.size();
  std::optional<Result<Extent>> written_;
  bool kept_ = false;
};

}  // namespace precis
