// A small file beside the rows holds the number of the last change that the store acknowledged.
// The rows hold the number of their last change too. Rows that hold a smaller one after a crash
// have lost what was acknowledged, whatever their own log says.
//
// A change is noted before it is acknowledged, without a sync: the death of the process loses no
// note. A thread syncs the file shortly after a change was synced, so the death of the machine
// loses the notes of the last kSyncEvery at most. Then the file says less than is true, and no loss
// is reported that did not happen.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/store/store.h"

namespace precis {

struct AckRecordOptions {
  std::string boot;          // names the machine's life; empty: the kernel's boot id
  bool sync_in_time = true;  // false, for tests: only close() and save() sync
};

// Thread-safe.
class AckRecord {
 public:
  static constexpr std::chrono::milliseconds kSyncEvery{100};

  // The file's record of the process before.
  struct Before {
    bool is_new = false;                 // there was no file; it is made
    bool is_damaged = false;             // it says nothing
    std::uint64_t expected = 0;          // the rows must hold this change, or a later one
    std::uint64_t last = 0;              // the last number that was noted
    std::optional<RecoveryDoubt> doubt;  // found earlier and not yet accepted
  };

  // `path`: of the file. Errors are the file system's.
  static Result<std::unique_ptr<AckRecord>> open(const std::string& path,
                                                 const AckRecordOptions& options = {});
  ~AckRecord();  // syncs
  AckRecord(const AckRecord&) = delete;
  AckRecord& operator=(const AckRecord&) = delete;

  const Before& before() const { return before_; }
  // The rows hold change `number`, and `doubt` is what is known of their recovery. On the disk when
  // it returns OK.
  Status save(std::uint64_t number, const std::optional<RecoveryDoubt>& doubt);
  // Change `number` is written; `synced`: it and all before it survive the machine. A note that
  // cannot be written is part of the next one.
  void note(std::uint64_t number, bool synced);

 private:
  struct Slot;
  AckRecord(Descriptor file, std::string path, std::string boot);
  Status load(bool is_new);
  // With mutex_ held.
  Status write_slot();
  Status sync(std::unique_lock<std::mutex>& lock);
  void run(const std::stop_token& stop);

  const Descriptor file_;
  const std::string path_, boot_;
  Before before_;
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  // Guarded by mutex_.
  std::uint64_t generation_ = 0, written_ = 0, synced_ = 0;
  std::optional<RecoveryDoubt> doubt_;
  unsigned slot_ = 0;      // written to; the other one is on the disk
  bool unsynced_ = false;  // a note of a synced change is not on the disk
  std::jthread syncer_;    // last: it uses all of the above
};

}  // namespace precis
