// The payload values of all backups of a folder: a file for each, named by the SHA-256 of its
// bytes. A value that several backups have is stored once. With a weaker checksum, a tenant could
// make a value that collides with another tenant's, and replace it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "precis/types.h"
#include "precis/view.h"

namespace precis {

class ValueFolder {
 public:
  explicit ValueFolder(std::string dir) : dir_(std::move(dir)) {}

  // Creates the missing folders, and removes files that an interrupted write left.
  Status prepare();
  // A file of this name and size is there. Its bytes may be others after a crash of the machine.
  bool has(const Digest& name, std::uint64_t size_bytes) const;
  // Writes the file, without a sync. After an error there is no file of this name.
  Status write(const Digest& name, Bytes value);
  // kNotFound if it is missing; kCorruption if its bytes or their number are others. Both name the
  // file.
  Result<std::vector<std::byte>> read(const Digest& name, std::uint64_t size_bytes) const;
  // Removes the values that are not among `named`, which are sorted.
  Status remove_others(std::span<const Digest> named);

 private:
  std::string folder_of(const Digest& name) const;
  std::string path_of(const Digest& name) const;
  Status each_file(
      const std::function<Status(const std::string& folder, const std::string& name)>& visit) const;

  const std::string dir_;
};

}  // namespace precis
