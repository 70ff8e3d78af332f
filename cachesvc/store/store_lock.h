// Allows one opener of a data directory at a time, across processes and spellings of the path.
// RocksDB's own lock is not enough: within a process it compares the path's text, and if a second
// opener closes the file, the process loses its lock.
#pragma once

#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis {

// Creates the directory and missing parents. kPermissionDenied if this process may not,
// kOutOfSpace, or kUnavailable naming the part of the path that is no directory.
Status make_directory(const std::string& dir);

// kPermissionDenied: this process may not read or write files in `dir`; `why` gives the reason.
Status not_ours(const std::string& dir, const std::string& why);

// The error for an `error` of errno from listing `dir`, classified as in make_directory().
Status not_listed(int error, const std::string& dir);

// Held until destruction, or until the process ends. A forked child does not hold the lock, however
// long it lives.
class StoreLock {
 public:
  explicit StoreLock(Descriptor file);
  StoreLock(StoreLock&& other) noexcept = default;
  StoreLock& operator=(StoreLock&&) = delete;
  ~StoreLock();
  int get() const { return file_.get(); }

 private:
  Descriptor file_;
};

// Creates and locks the file. kUnavailable if the directory is already open, kPermissionDenied if
// this process may not write to it.
Result<StoreLock> lock_store(const std::string& dir);

}  // namespace precis
