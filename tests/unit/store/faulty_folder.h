// A folder in memory that does what disks do: it fails, fills up, and when the power goes keeps of
// what was not synced any blocks it likes, in any order, and names as it likes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/files.h"

namespace precis::testing {

// What remains when a store is closed and opened again.
class FaultyDrive {
 public:
  // A folder over these files; several over time, one at a time.
  std::unique_ptr<Folder> folder();

  // Every byte past this many fails with kOutOfSpace.
  void set_room(std::uint64_t bytes);
  // Lets holes be punched into files, or not. At first they can.
  void set_punches(bool punches);
  // The operation after `count` others fails with `status`, and so do all that follow.
  void fail_after(std::uint64_t count, Status status);
  // While held, operations wait.
  void hold(bool held);
  // While held, syncs of files wait, and nothing else does.
  void hold_syncs(bool held);
  std::uint64_t syncs() const;  // of files that have begun
  std::uint64_t operations() const;
  unsigned open_files() const;
  void flip_bit(const std::string& name, std::uint64_t byte, unsigned bit);
  void cut_file(const std::string& name, std::uint64_t size);
  std::vector<std::string> names() const;
  std::uint64_t size(const std::string& name) const;
  std::uint64_t bytes() const;  // of all files, less their holes

  // The power goes: folders and files of before fail from now on; what `rng` says is left.
  void lose_power(std::mt19937_64& rng);

 private:
  friend class FaultyFolder;
  friend class FaultyFile;
  struct Inode {
    std::vector<std::byte> bytes;   // as read now
    std::vector<std::byte> synced;  // as of the last sync
    std::set<std::uint64_t> holes;  // offsets of blocks that take no room
    std::uint64_t taken() const;
  };
  using Inodes = std::map<std::string, std::shared_ptr<Inode>>;
  // With mutex_ held. Counts an operation of a folder of the `era`.
  Status operate(std::uint64_t era);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Inodes files_, synced_files_;
  std::uint64_t era_ = 0;  // how often the power went
  std::uint64_t operations_ = 0, name_changes_ = 0;
  unsigned open_files_ = 0;
  std::optional<std::uint64_t> fails_at_;
  Status failure_;
  std::uint64_t room_ = ~std::uint64_t{0};
  bool held_ = false, syncs_held_ = false, punches_ = true;
  std::uint64_t syncs_ = 0;
  std::condition_variable_any released_;
};

}  // namespace precis::testing
