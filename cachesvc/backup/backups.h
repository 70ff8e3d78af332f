// The backups of a running service: makes one at a time, on a thread of low priority.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/backup/make_backup.h"
#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/log.h"
#include "cachesvc/store/store.h"
#include "precis/messages.h"

namespace precis {

// Thread-safe.
class Backups {
 public:
  // All outlive it. `dir`: the folder of the backups; empty: there are none. `thread` has one
  // thread.
  struct Parts {
    Store& store;
    const Clock& clock;
    Log& log;
    std::string dir, data_dir;
    std::unique_ptr<Executor> thread;
  };
  explicit Backups(Parts parts) : parts_(std::move(parts)) {}

  // [blocking] Starts a backup, and does not wait for it. An empty name stands for the time.
  // `keep`: once it is complete, only so many of the newest stay; 0: all. kUnsupported without a
  // folder, kConflict while a backup runs or if there is one of that name, kUnavailable after
  // stop().
  Result<msg::BackupState> start(std::string name, std::uint32_t keep);
  // The backup that runs, or ran last since the start of the service.
  msg::BackupState state() const;
  // Ends the backup that runs, soon; its values are used by the next one.
  msg::BackupState cancel();
  // Ends the backup that runs, and begins no other.
  void stop();
  // [blocking] Those that can be restored.
  Result<msg::Backups> list() const;
  bool busy() const { return busy_; }

 private:
  // Decides that the caller begins the next backup, or refuses.
  Status take_turn();
  // Refuses the name of a complete backup. An empty one becomes the time.
  Result<std::string> name_of(std::string asked, std::uint64_t now_ms) const;
  void run(std::uint32_t keep);
  Status make(std::uint32_t keep);
  Status canceled() const;  // kCanceled if it was canceled
  std::uint64_t room_for_puts() const;
  void end(const Status& status);

  Parts parts_;
  // They become true only under mutex_, so that a cancellation is always of the backup that runs.
  std::atomic<bool> busy_ = false, canceled_ = false;
  mutable std::mutex mutex_;
  bool stopped_ = false;    // guarded by mutex_
  msg::BackupState state_;  // guarded by mutex_
};

}  // namespace precis
