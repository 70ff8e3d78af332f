// A disk for RocksDB, in memory, that forgets when the power goes: of what files got since their
// last sync, any pieces, and of the names made, removed and changed since the folder's last sync,
// all from some moment on (a journal keeps their order).
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace rocksdb {
class Env;
}

namespace precis::testing {

class ForgetfulDisk {
 public:
  ForgetfulDisk();
  ~ForgetfulDisk();
  // Good until the power goes, then for failing only.
  rocksdb::Env* env() const { return envs_.back().get(); }
  // Who has it open fails from now on; what `rng` says is left.
  void lose_power(std::mt19937_64& rng);
  // The operation after `count` others fails, and so do all that follow, until the power goes.
  void fail_after(std::uint64_t count);

  struct State;

 private:
  std::shared_ptr<State> state_;                     // shared with every file that is open
  std::vector<std::unique_ptr<rocksdb::Env>> envs_;  // one for each time that there was power
};

}  // namespace precis::testing
