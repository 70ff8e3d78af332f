// Detects that something else deletes files of an open store. A write to a deleted file succeeds,
// but no restart finds the file.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

// Thread-safe.
class DeletedFiles {
 public:
  // `lock` is the descriptor of the store's lock file in `dir`, and outlives this object.
  DeletedFiles(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}

  // Checks the lock file. kUnavailable once a deletion was found.
  Status check();
  // check(), and also checks that the path still names the directory that was opened. A system call
  // that fails for another reason proves nothing.
  Status check_directory();
  // Calls `look` twice and returns a file that both calls report as missing. A file that only one
  // call reports may have been removed by the store itself after it was listed.
  static std::optional<std::string> missing_twice(
      const std::function<std::vector<std::string>()>& look);
  // Records that `what` was deleted. Returns kUnavailable, as check() does from now on.
  Status found(const std::string& what);

 private:
  const std::string dir_;
  const int lock_;
  std::mutex mutex_;
  Status found_;  // guarded by mutex_
};

}  // namespace precis
