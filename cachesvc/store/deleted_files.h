// Notices that somebody deletes files of a store while it is open. A write to such a file succeeds,
// and no restart finds it.
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
  // `lock` is the descriptor of the store's lock file in `dir`, and outlives it.
  DeletedFiles(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}

  // kUnavailable once anything was found to be deleted; looks at the lock file.
  Status check();
  // The same, and looks whether the directory is still the one that was opened. A look that fails
  // says nothing.
  Status check_directory();
  // Of files that `look` finds to be missing, one that is missing in two looks. A file that is
  // missing in one of them may have been removed by the store itself after it was listed.
  static std::optional<std::string> missing_twice(
      const std::function<std::vector<std::string>()>& look);
  // kUnavailable, now and from check() on, because `what` was found to be deleted.
  Status found(const std::string& what);

 private:
  const std::string dir_;
  const int lock_;
  std::mutex mutex_;
  Status found_;  // guarded by mutex_
};

}  // namespace precis
