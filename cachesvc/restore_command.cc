#include "cachesvc/restore_command.h"

#include <cstdio>
#include <vector>

#include "cachesvc/backup/backup_folder.h"
#include "cachesvc/backup/restore.h"
#include "cachesvc/base/counted.h"
#include "cachesvc/base/utc_time.h"
#include "precis/printable.h"
#include "schema/json/message_json.h"

namespace precis {
namespace {

using message_json::Json;

std::string line_of(const msg::BackupRow& row) {
  if (!row.fault.empty()) return row.name + "  " + printable(row.fault) + "\n";
  return row.name + "  " + utc_text(row.created_unix_ms, "%Y-%m-%d %H:%M:%S UTC") + "  " +
         counted(row.values, "value") + " of " + std::to_string(row.bytes) + " B, " +
         std::to_string(row.copied_bytes) + " B of them new" +
         (row.damaged == 0 ? "" : ", without " + counted(row.damaged, "damaged value")) + "\n";
}

Status print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return written && std::fflush(stdout) == 0 ? Status() : Status::out_of_space("writing output");
}

Status list_backups(const RestoreOptions& options) {
  PRECIS_ASSIGN(const auto rows, BackupFolder(options.from).list());
  if (options.json) {
    return print(message_json::json_text(Json{{"backups", message_json::rows_json(rows)}}));
  }
  std::string text;
  for (const msg::BackupRow& row : rows) text += line_of(row);
  return print(text.empty() ? no_backup_in(options.from) + "\n" : text);
}

Status print_restored(const RestoreOptions& options, const Restored& restored) {
  if (options.json) {
    return print(message_json::json_text(Json{{"backup", message_json::to_json(restored.backup)},
                                              {"values", restored.values},
                                              {"bytes", restored.bytes},
                                              {"faults", restored.faults},
                                              {"named", restored.named},
                                              {"dry_run", options.dry_run}}));
  }
  std::string text;
  for (const std::string& fault : restored.named) text += printable(fault) + "\n";
  text += (options.dry_run ? "checked " : "restored ") + counted(restored.values, "value") +
          " of " + std::to_string(restored.bytes) + " B of the backup " + restored.backup.name;
  if (!options.dry_run) text += " into " + options.into;
  return print(text + "\n");
}

Status restore(const RestoreOptions& options) {
  if (options.list) return list_backups(options);
  if (!options.dry_run && options.into.empty()) {
    return Status::invalid("--restore needs --data DIR, the new data directory");
  }
  std::string name = options.name;
  if (name.empty()) {
    PRECIS_ASSIGN(name, newest_backup(options.from));
  }
  PRECIS_ASSIGN(const Restored restored, options.dry_run
                                             ? check_backup(options.from, name)
                                             : restore_backup(options.from, name, options.into));
  PRECIS_TRY(print_restored(options, restored));
  if (restored.faults == 0) return {};
  return Status::corruption(
      counted(restored.faults, "value") + " of the backup " +
      (restored.faults == 1 ? "is" : "are") + " missing or damaged" +
      (options.dry_run ? "" : "; their segments are out of service, precisctl fsck names them"));
}

}  // namespace

Status run_restore(const RestoreOptions& options) {
  Status status = restore(options);
  if (!status.ok() && options.json) {
    const Json error{{"code", status_code_name(status.code())}, {"message", status.message()}};
    std::fputs(message_json::json_text(Json{{"error", error}}).c_str(), stderr);
  }
  return status;
}

}  // namespace precis
