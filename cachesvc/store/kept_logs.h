// Keeps the store's logs from before RocksDB's recovery. RocksDB deletes its logs, even damaged
// ones, once it has opened; without the logs, the payload of lost rows cannot be identified.
//
// The logs are kept as hard links in DIR/before_recovery/N, one folder per opening: RocksDB's logs,
// its lists of files (MANIFEST-*) and CURRENT. The links take no space as long as the logs exist.
#pragma once

#include <cstdint>
#include <string>

#include "precis/status.h"

namespace precis {

inline constexpr const char* kKeptLogsName = "before_recovery";

// Not thread-safe. Works on the store's directory while the caller holds the store's lock.
class KeptLogs {
 public:
  explicit KeptLogs(std::string dir) : dir_(std::move(dir)) {}

  // [blocking] Call before RocksDB opens. If the logs cannot be kept, for example because the file
  // system has no hard links, text() says so and the store opens nevertheless.
  void keep();
  // [blocking] Removes the links that keep() made, because this opening lost nothing.
  void remove_latest();
  // [blocking] Removes all links, because nothing is missing or the loss is accepted.
  void remove_all();

  // For people: the folder with the logs of doubtful openings, or why they are not kept. Empty if
  // neither applies.
  std::string text() const;
  // [blocking] Size of the kept files.
  std::uint64_t bytes() const;

 private:
  Status link_all(const std::string& folder) const;
  std::string parent() const { return dir_ + "/" + kKeptLogsName; }

  std::string dir_;
  std::string latest_;  // the folder that keep() made, if any
  Status failed_;       // why keep() could not make it
};

}  // namespace precis
