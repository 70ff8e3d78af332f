// A small file beside the rows holds the number of the last acknowledged change. The rows hold the
// number of their last change too. After a crash, rows with a smaller number have lost acknowledged
// changes, whatever RocksDB's log reports.
//
// A change is noted in the file before it is acknowledged, without a sync, so a crash of the
// process loses no note. A thread syncs the file shortly after a change was synced, so a crash of
// the machine loses at most the notes of the last kSyncEvery. The file then has a smaller number
// than it should, so no false loss is reported.
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
#include "cachesvc/store/row_store.h"

namespace precis {

struct AckRecordOptions {
  std::string boot;          // identifies this run of the machine; empty: the kernel's boot id
  bool sync_in_time = true;  // false (for tests): only the destructor and save() sync
};

// Thread-safe.
class AckRecord {
 public:
  static constexpr std::chrono::milliseconds kSyncEvery{100};

  // The record that the previous process left.
  struct Before {
    bool is_new = false;                 // there was no file; it was created
    bool is_damaged = false;             // its content is unreadable
    std::uint64_t expected = 0;          // the rows must hold this change or a later one
    std::uint64_t last = 0;              // the last noted number
    std::optional<RecoveryDoubt> doubt;  // found earlier and not accepted yet
  };

  // `path`: the file. Returns errors of the file system, and kVersionMismatch for a newer format.
  static Result<std::unique_ptr<AckRecord>> open(const std::string& path,
                                                 const AckRecordOptions& options = {});
  ~AckRecord();  // syncs
  AckRecord(const AckRecord&) = delete;
  AckRecord& operator=(const AckRecord&) = delete;

  const Before& before() const { return before_; }
  // Records that the rows hold change `number`, and `doubt`, the state of their recovery. Synced
  // when it returns OK.
  Status save(std::uint64_t number, const std::optional<RecoveryDoubt>& doubt);
  // Records that change `number` is written. `synced`: it and all earlier changes survive a crash
  // of the machine. If this write fails, the next one repeats it.
  void note(std::uint64_t number, bool synced);

 private:
  struct Slot;
  AckRecord(Descriptor file, std::string path, std::string boot);
  Status load(bool is_new);
  // Callers hold mutex_ for the functions below.
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
  unsigned slot_ = 0;      // the slot to write; the other slot is synced
  bool unsynced_ = false;  // a note of a synced change is not on the disk
  std::jthread syncer_;    // last: it uses all of the above
};

}  // namespace precis
