// RocksDB's account of what it does, for people: DIR/LOG, and what it was before, DIR/LOG.old.
//
// RocksDB can write these files itself, but then ends the process with the line that comes after
// one for which the disk had no room.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "cachesvc/base/descriptor.h"

namespace precis {

// Thread-safe. Errors lose lines and nothing else.
class InfoLog {
 public:
  // Begins LOG anew now, and whenever it would be longer than `bytes_max`.
  InfoLog(const std::string& dir, std::uint64_t bytes_max);
  // Adds the time, and the line's end where it lacks one.
  void write(std::string_view line);

 private:
  void begin();  // with mutex_ held

  const std::string path_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  // Guarded by mutex_.
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace precis
