// An in-memory folder that behaves like a disk: it fails, fills up, and if the power fails keeps
// any unsynced blocks, in any order, and any unsynced changes of names.
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

// The state that remains when a store is closed and opened again.
class FaultyDrive {
 public:
  // A folder over these files. Several may be created in turn, one at a time.
  std::unique_ptr<Folder> folder();

  // Writes beyond this many bytes in total fail with kOutOfSpace.
  void set_room(std::uint64_t bytes);
  // Allows or forbids punching holes into files; allowed at first.
  void set_punches(bool punches);
  // The operation after `count` others and all later ones fail with `status`.
  void fail_after(std::uint64_t count, Status status);
  // While held, operations wait.
  void hold(bool held);
  // While held, syncs of files wait; other operations do not.
  void hold_syncs(bool held);
  std::uint64_t syncs() const;  // syncs of files, each counted when it begins
  std::uint64_t operations() const;
  unsigned open_files() const;
  void flip_bit(const std::string& name, std::uint64_t byte, unsigned bit);
  void cut_file(const std::string& name, std::uint64_t size);
  std::vector<std::string> names() const;
  std::uint64_t size(const std::string& name) const;
  std::uint64_t bytes() const;  // of all files, without holes

  // The power fails: earlier folders and files fail from now on; `rng` decides what remains.
  void lose_power(std::mt19937_64& rng);

 private:
  friend class FaultyFolder;
  friend class FaultyFile;
  struct Inode {
    std::vector<std::byte> bytes;   // as read now
    std::vector<std::byte> synced;  // as of the last sync
    std::set<std::uint64_t> holes;  // offsets of blocks without disk space
    std::uint64_t taken() const;
  };
  using Inodes = std::map<std::string, std::shared_ptr<Inode>>;
  // Callers hold mutex_. Counts an operation by a folder of the `era`.
  Status operate(std::uint64_t era);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Inodes files_, synced_files_;
  std::uint64_t era_ = 0;  // number of power losses
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
