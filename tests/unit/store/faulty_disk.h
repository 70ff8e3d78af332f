// A disk for RocksDB that can be full: a small wrapper around the machine's file system.
#pragma once

#include <atomic>
#include <memory>

namespace rocksdb {
class Env;
}

namespace precis::testing {

class FaultyDisk {
 public:
  FaultyDisk();
  ~FaultyDisk();
  rocksdb::Env* env() const { return env_.get(); }
  // While full, every append to a file fails with "no space".
  void set_full(bool full) { *full_ = full; }

 private:
  std::shared_ptr<std::atomic<bool>> full_;  // shared with every open file
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace precis::testing
