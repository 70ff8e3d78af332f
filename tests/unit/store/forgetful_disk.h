// An in-memory disk for RocksDB that loses data when the power fails. Each file keeps any parts of
// the bytes written since its last sync. The folder keeps the changes of names since its last sync
// up to some moment, because a journal keeps their order.
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
  // Usable until the power fails; then it returns errors only.
  rocksdb::Env* env() const { return envs_.back().get(); }
  // Open files fail from now on; `rng` decides which unsynced data remains.
  void lose_power(std::mt19937_64& rng);
  // The operation after `count` others and all later ones fail, until the power fails.
  void fail_after(std::uint64_t count);

  struct State;

 private:
  std::shared_ptr<State> state_;                     // shared with every open file
  std::vector<std::unique_ptr<rocksdb::Env>> envs_;  // one per period with power
};

}  // namespace precis::testing
