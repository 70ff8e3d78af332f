// Restores a backup into a new data directory, without a service.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis {

struct Restored {
  msg::BackupRow backup;
  std::uint64_t values = 0, bytes = 0;  // that are whole
  std::uint64_t faults = 0;             // values that are missing or damaged
  std::vector<std::string> named;       // what is wrong with the first kNamedFaultsMax
};
inline constexpr std::size_t kNamedFaultsMax = 100;

// A message for a folder without backups, which says how to recognize one with backups.
std::string no_backup_in(const std::string& backup_dir);

// The name of the newest backup of the folder that can be read; kNotFound if there is none.
Result<std::string> newest_backup(const std::string& backup_dir);

// [blocking] Reads every value of a backup and checks it by its name. Changes nothing.
Result<Restored> check_backup(const std::string& backup_dir, const std::string& name);

// [blocking] The same, and writes all into `data_dir`, which must be missing or empty. A value with
// a fault is left out, and its segment is out of service. A service refuses the directory unless
// this returned OK.
Result<Restored> restore_backup(const std::string& backup_dir, const std::string& name,
                                const std::string& data_dir);

}  // namespace precis
