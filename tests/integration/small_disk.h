// Real file systems that are small: a tmpfs, or ext4 in an image. Mounting needs privileges that a
// test machine may lack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "precis/status.h"

namespace precis::testing {

enum class DiskKind { kTmpfs, kExt4 };

// Mounted during the object's lifetime.
class SmallDisk {
 public:
  static Result<std::unique_ptr<SmallDisk>> mount(DiskKind kind, std::uint64_t size_bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  std::string path(const std::string& name) const { return dir_ + "/disk/" + name; }
  std::uint64_t free_bytes() const;
  // Writes a file that leaves no free space.
  void fill_up(const std::string& name) const;

 private:
  explicit SmallDisk(std::string dir) : dir_(std::move(dir)) {}
  const std::string dir_;
  bool mounted_ = false;
};

}  // namespace precis::testing
