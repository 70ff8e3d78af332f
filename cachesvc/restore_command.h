// precisd --restore: lists, checks and restores backups, without a service.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis {

struct RestoreOptions {
  std::string from;      // the folder of the backups
  std::string name;      // empty: the newest
  std::string into;      // the new data directory
  bool list = false;     // only lists the backups
  bool dry_run = false;  // only reads and checks
  bool json = false;
};

// Prints what it did, and with `json` also an error, to stderr. kCorruption if values are missing
// or damaged; all others are restored.
Status run_restore(const RestoreOptions& options);

}  // namespace precis
