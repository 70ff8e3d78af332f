// One opener of a data directory at a time, in whatever process and however it spells the path.
// RocksDB's own lock does not do: within a process it goes by the path's text, and closing the file
// once more, as a second opener does, gives up what the process had.
#pragma once

#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis {

// Makes the directory, and those above it, where they are missing. kPermissionDenied where this
// process may not, kOutOfSpace, or kUnavailable naming the part of the path that is in the way.
Status make_directory(const std::string& dir);

// kPermissionDenied: this process may not read or write what is in `dir`, as `why` says.
Status not_ours(const std::string& dir, const std::string& why);

// What of make_directory() an `error` of errno is where `dir` can't be listed.
Status not_listed(int error, const std::string& dir);

// Held until it is destroyed, by the end of the process at the latest. A child that this process
// forks does not hold it, however long it lives.
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

// Makes the file that it locks. kUnavailable where the directory is open already, kPermissionDenied
// where this process may not write to it.
Result<StoreLock> lock_store(const std::string& dir);

}  // namespace precis
