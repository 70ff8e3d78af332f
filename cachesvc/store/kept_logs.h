// The logs of a store as they were before RocksDB recovered from them. RocksDB deletes its logs
// once it has opened, damaged ones too, and with them what gives the payload of lost rows a
// meaning.
//
// They are kept as hard links in DIR/before_recovery/N, a folder for each opening: RocksDB's logs,
// its lists of files (MANIFEST-*) and CURRENT. The links take no room while the logs are there.
#pragma once

#include <cstdint>
#include <string>

#include "precis/status.h"

namespace precis {

inline constexpr const char* kKeptLogsName = "before_recovery";

// Not thread-safe. Works on what lies in the store's directory, under its lock.
class KeptLogs {
 public:
  explicit KeptLogs(std::string dir) : dir_(std::move(dir)) {}

  // [blocking] Before RocksDB opens. Where they can't be kept, because the file system has no hard
  // links for example, text() says so and the store opens all the same.
  void keep();
  // [blocking] This opening lost nothing: the links that keep() made go.
  void forget_latest();
  // [blocking] Nothing is missing, or the loss is accepted: all links go.
  void forget();

  // For people: where the logs of doubtful openings are, or why they are not kept. Empty where
  // there is nothing to say.
  std::string text() const;
  // [blocking] That the kept files take.
  std::uint64_t bytes() const;

 private:
  Status link_all(const std::string& folder) const;
  std::string parent() const { return dir_ + "/" + kKeptLogsName; }

  std::string dir_;
  std::string latest_;  // the folder that keep() made, if any
  Status failed_;       // why keep() made none
};

}  // namespace precis
