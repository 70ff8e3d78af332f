// Makes one backup of a store that goes on working.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cachesvc/backup/backup_folder.h"
#include "cachesvc/store/store.h"

namespace precis {

struct BackupPlan {
  std::string name;  // check_backup_name()
  std::uint64_t now_unix_ms = 0;
  // Free space to leave on the file system of the folder, for the puts of clients.
  std::uint64_t leave_free_bytes = 0;
};

// The progress of a backup. `damage` names the damaged values, one a line.
struct BackupProgress {
  std::uint64_t values = 0, bytes = 0;            // of the store
  std::uint64_t done_values = 0, done_bytes = 0;  // read and checked
  std::uint64_t copied_values = 0, copied_bytes = 0;
  std::uint64_t damaged = 0;
  std::string damage;
};

// [blocking] Copies every row, and the payload values that the folder lacks. A value that fails its
// checks is left out, and its segment is out of service in the backup. `told` is called after each
// value; an error of it ends the backup. If the folder's disk is full, kOutOfSpace, and the copied
// values are removed. After any other error, the next backup uses them. kConflict if there is a
// backup of that name.
Status make_backup(Store& store, BackupFolder& folder, BackupPlan plan,
                   const std::function<Status(const BackupProgress&)>& told);

}  // namespace precis
