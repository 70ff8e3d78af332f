// RocksDB's log for people: DIR/LOG, and the previous one, DIR/LOG.old.
//
// RocksDB can write these files itself. But if a line does not fit on the disk, RocksDB ends the
// process at the next line.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "cachesvc/base/descriptor.h"

namespace precis {

// Thread-safe. Errors only lose lines.
class InfoLog {
 public:
  // Starts a new LOG now, and whenever LOG would exceed `bytes_max`.
  InfoLog(const std::string& dir, std::uint64_t bytes_max);
  // Prepends the time, and appends a line feed if missing.
  void write(std::string_view line);

 private:
  void begin();  // callers hold mutex_

  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  // Guarded by mutex_.
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace precis
