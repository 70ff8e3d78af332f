// precisctl backup and restore.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/commands.h"

namespace precis::cli {

struct BackupOptions {
  std::string name;        // empty: named after the time
  std::uint32_t keep = 0;  // 0: all
};
// Has the service make a backup, and shows its progress until it ends. Ctrl-C cancels it.
// kCorruption if stored values are damaged; the backup has all others.
Status make_backup(Context context, const BackupOptions& options);
Status list_backups(Context context);
Status cancel_backup(Context context);

struct Restoration {
  std::string from, name, into;
  bool list = false, dry_run = false, json = false;
};
// Replaces this process by precisd --restore. precisd is installed beside this program or found by
// PATH. Returns only on an error: kNotFound if there is no such backup, kConflict if `into` is not
// empty.
Status restore(const Restoration& options);

}  // namespace precis::cli
