// The payload files that one holder keeps as they are (PayloadHold).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "precis/status.h"

namespace precis {

// Thread-safe.
class HeldFiles {
 public:
  // False if there is a holder already.
  bool hold(std::set<std::uint32_t> files) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_holder_, true)) return false;
    files_ = std::move(files);
    ended_ = false;
    return true;
  }
  void release(std::uint32_t file) {
    const std::lock_guard lock(mutex_);
    files_.erase(file);
  }
  void release_all() {
    const std::lock_guard lock(mutex_);
    files_.clear();
    has_holder_ = false;
  }
  // Takes the files from the holder. False if it had none.
  bool end() {
    const std::lock_guard lock(mutex_);
    if (files_.empty()) return false;
    files_.clear();
    return ended_ = true;
  }
  Status check() const {
    const std::lock_guard lock(mutex_);
    if (!ended_) return {};
    return Status::out_of_space(
        "the disk of the data directory is short of space that this backup kept from being "
        "reclaimed; free space there, and start the backup again");
  }
  bool has(std::uint32_t file) const {
    const std::lock_guard lock(mutex_);
    return files_.contains(file);
  }

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::set<std::uint32_t> files_;
  bool has_holder_ = false, ended_ = false;
};

}  // namespace precis
