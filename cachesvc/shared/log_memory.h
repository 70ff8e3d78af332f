// The memory that the logs of one storage (shard_log.h) share: the states that they keep between
// reads, and turns of those that read large ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "cachesvc/shared/log_record.h"

namespace precis {

// Thread-safe.
class LogMemory {
 public:
  // The states that are kept take at most so many bytes (LogState::memory_bytes()).
  explicit LogMemory(std::size_t kept_bytes_max) : kept_bytes_max_(kept_bytes_max) {}

  struct Kept {
    LogState state;
    std::uint64_t last = 0;  // the state is the outcome of the records up to this one
  };
  // A log is named by its address. One thread at a time takes its state.
  using Log = const void*;
  bool has(Log log) const;
  // Takes the state of the log to use or change it; null: there is none. Its room is still counted.
  std::unique_ptr<Kept> take(Log log);
  // Keeps the state, unless a later one of the log is kept, and forgets those that were read least
  // recently if there is no room. `was_read`: the state was read now.
  void give(Log log, std::unique_ptr<Kept> kept, bool was_read);
  void drop(Log log);
  std::size_t kept_bytes() const;

  // The thread that holds this lock may use much more memory. It never waits for a thread that uses
  // a log.
  using Turn = std::unique_lock<std::mutex>;
  std::mutex& large() { return large_; }

 private:
  struct Entry {
    std::unique_ptr<Kept> kept;  // null: it is taken
    std::size_t bytes = 0;
    std::uint64_t read = 0;  // number of its last read; 0: never read
  };

  const std::size_t kept_bytes_max_;
  std::mutex large_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Log, Entry> entries_;
  std::size_t bytes_ = 0;  // of all entries
  std::uint64_t reads_ = 0;
};

}  // namespace precis
