// A log in an object store that can create objects but not compare them (docs/design/cluster.md,
// S3). The record N is the object of that number, which one machine creates; whether it changes
// anything is decided by the records before it, which every reader replays in their order.
//
// A snapshot has what all records up to its number have made. Those are then removed. A slow
// machine may later create one of them again. Such an object has no effect, because a record counts
// only if no snapshot of its number or a later one existed when it was read. So a reader lists the
// names again after it has read records, from the last record that is known to count.
//
// A log keeps the marks, the last records, and, if there is room (log_memory.h), the rows since
// they were last read. All of them are of the same records, and are used after a list has shown
// which records have come since and that those before count. So a change that another machine has
// made before a call is never missed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "cachesvc/shared/log_memory.h"
#include "cachesvc/shared/log_objects.h"
#include "cachesvc/shared/log_record.h"
#include "cachesvc/shared/object_store.h"

namespace precis {

// Thread-safe. Calls block. Errors as ObjectStore's, or those of log_record.h.
class ShardLog {
 public:
  struct Settings {
    std::string name;                      // begins the names of the log's objects
    std::uint64_t snapshot_after = 128;    // records
    std::size_t kept_bytes_max = 1 << 18;  // of the last records, so that a scan need not read them
    bool may_be_removed = false;  // by a person, while it is in use; else that is kCorruption
    LogMemory* memory = nullptr;  // outlives the log; null: no rows are kept
  };
  // `store` outlives it.
  ShardLog(ObjectStore& store, Settings settings)
      : settings_(std::move(settings)), objects_(store, settings_.name, settings_.memory) {}

  const std::string& name() const { return settings_.name; }
  // The marks at some time after the call began.
  Result<LogState> marks();
  // Calls `use`, which uses no log, with the rows and marks at some time after the call began, and
  // returns its error.
  using Use = std::function<Status(const LogState&)>;
  Status read(const Use& use);
  struct Appended {
    LogState::Fit fit = LogState::Fit::kMakes;  // kMakes: the record has made its change now
    LogState now;                               // if kDiffers: the marks
    bool is_long = false;                       // it is time for tidy()
  };
  // Adds the record if it makes its change. kInvalidArgument if it is too large.
  Result<Appended> append(const LogRecord& record);
  // Makes a snapshot if there are many records, and removes what no reader needs. Ends soon once
  // `is_ending`.
  Status tidy(const std::atomic<bool>& is_ending);

 private:
  // Other machines may change the log all the time.
  static constexpr int kReadsMax = 16;

  using Names = LogObjects::Names;
  using Record = LogObjects::Record;
  struct Read {
    LogState state;
    std::uint64_t snapshot = 0, last = 0;  // their numbers; 0: none
    std::size_t snapshot_bytes = 0;
    LogMemory::Turn turn;
    void forget() {  // so that others have its memory and its turn
      state = {};
      if (turn) turn.unlock();
    }
  };

  enum class Verified { kCounts, kReplaced, kGone };
  Result<Verified> verify(Names& names, std::uint64_t end);
  Status catch_up();
  Result<bool> replay_next();
  Status load(std::uint64_t snapshot);
  void forget();
  void keep(std::uint64_t number, Record bytes);
  bool keeps_rows() const { return settings_.memory != nullptr && !settings_.may_be_removed; }
  std::unique_ptr<LogMemory::Kept> take_rows();
  Result<bool> use_kept(const Use& use);
  void keep_rows(Read read);
  enum class Whole { kYes, kChanges, kGap };
  Result<Whole> read_once(Read& read) const;
  Result<Read> read_all() const;
  Status removed_in_use() const;
  Status too_busy() const;

  const Settings settings_;
  LogObjects objects_;
  std::atomic<std::uint64_t> tidied_ = 0;  // the last snapshot that tidy() has seen
  std::mutex mutex_;                       // also held during requests about new records
  // Guarded by mutex_.
  LogState marks_;             // after the record last_
  std::uint64_t last_ = 0;     // the last record that is replayed
  std::uint64_t counted_ = 0;  // the records up to it are known to count

  mutable std::mutex kept_mutex_;  // the last to be taken
  // Guarded by kept_mutex_.
  std::map<std::uint64_t, Record> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace precis
