// The folder of the backups of one service: NAME.rows for each complete backup (rows_file.h), and
// the values of all in values/. An interrupted backup leaves values only, and a file whose name
// ends in .new.
#pragma once

#include <cstdint>
#include <functional>
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
  // kConflict if there is a complete backup of this name.
  Status check_new(const std::string& name) const;
  // The complete backups, the newest first. One whose header is unreadable has `fault` set.
  Result<std::vector<msg::BackupRow>> list() const;
  // Removes all backups but the newest `keep` (0: keeps all), then the values that no backup names.
  // If a backup is unreadable, its error, and nothing is removed. `go_on` is called now and then;
  // an error of it ends this.
  using GoOn = std::function<Status()>;
  Status keep(
      std::uint32_t keep, const GoOn& go_on = [] { return Status(); });

 private:
  // The names of the values of these backups, sorted.
  Result<std::vector<Digest>> named_values(const std::vector<msg::BackupRow>& rows,
                                           const GoOn& go_on) const;
  const std::string dir_;
  ValueFolder values_;
  std::optional<StoreLock> lock_;
};

}  // namespace precis
