// The folder of the backups of one service: NAME.rows for each complete backup (rows_file.h), and
// the values of all in values/. An interrupted backup leaves values only, and a file whose name
// ends in .new.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/backup/value_folder.h"
#include "cachesvc/store/store_lock.h"
#include "precis/messages.h"

namespace precis {

// kInvalidArgument unless it is 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter
// or digit: it becomes the name of a file.
Status check_backup_name(const std::string& name);

class BackupFolder {
 public:
  // For reading: nothing is changed.
  explicit BackupFolder(std::string dir) : dir_(std::move(dir)), values_(dir_ + "/values") {}
  // Creates the folder if it is missing, locks it, and removes what interrupted backups cannot use.
  // kPermissionDenied if others may enter it; kConflict if another service writes to it.
  Status open_to_write();

  const std::string& dir() const { return dir_; }
  ValueFolder& values() { return values_; }
  // The file of the rows of a backup, which exists once it is complete.
  std::string rows_path(const std::string& name) const { return dir_ + "/" + name + ".rows"; }
  // The complete backups, the newest first. One whose header is unreadable has `fault` set.
  Result<std::vector<msg::BackupRow>> list() const;
  // The names of the values of all complete backups, sorted. Those of unreadable files are left
  // out; `faulty` is then the first error.
  std::vector<Digest> named_values(Status& faulty) const;
  // Removes all backups but the newest `keep` (0: none), then the values that no backup names. If a
  // backup is unreadable, its error, and values stay.
  Status keep(std::uint32_t keep);

 private:
  const std::string dir_;
  ValueFolder values_;
  std::optional<StoreLock> lock_;
};

}  // namespace precis
