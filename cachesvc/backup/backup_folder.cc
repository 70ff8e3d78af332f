#include "cachesvc/backup/backup_folder.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cachesvc/backup/plain_files.h"
#include "cachesvc/backup/rows_file.h"
#include "cachesvc/base/private_dir.h"

namespace precis {
namespace {

constexpr std::string_view kRows = ".rows";
constexpr std::size_t kNameMax = 64;

// Does not depend on the locale.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

Status check_backup_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= kNameMax && is_plain(name.front()) &&
                    std::ranges::all_of(name, [](char c) {
                      return is_plain(c) || c == '.' || c == '_' || c == '-';
                    });
  if (fits) return {};
  return Status::invalid("the name of a backup must be 1 to " + std::to_string(kNameMax) +
                         " letters, digits, '.', '_' and '-', and begin with a letter or digit");
}

Status BackupFolder::open_to_write() {
  const MadePrivate made = make_private(dir_);
  if (!made.left_open.ok()) {
    return Status::denied("others may enter the folder of backups " + dir_ + ": " +
                          made.left_open.message());
  }
  PRECIS_TRY(make_directory(dir_));
  auto lock = lock_store(dir_);
  if (lock.status().code() == StatusCode::kUnavailable) {
    return Status::conflict("another service writes to the folder of backups " + dir_);
  }
  PRECIS_TRY(lock.status());
  lock_.emplace(std::move(lock).value());
  PRECIS_ASSIGN(const std::vector<std::string> names, names_in(dir_));
  for (const std::string& name : names) {
    if (name.ends_with(".rows.new")) (void)::unlink((dir_ + "/" + name).c_str());
  }
  return values_.prepare();
}

Status BackupFolder::check_new(const std::string& name) const {
  std::error_code error;
  if (!std::filesystem::exists(rows_path(name), error)) return {};
  return Status::conflict("there is a backup '" + name + "' already; give another name");
}

Result<std::vector<msg::BackupRow>> BackupFolder::list() const {
  std::vector<msg::BackupRow> rows;
  auto names = names_in(dir_);
  if (names.status().code() == StatusCode::kNotFound) return rows;  // nothing was written yet
  PRECIS_TRY(names.status());
  for (const std::string& file : *names) {
    if (!file.ends_with(kRows)) continue;
    const std::string name = file.substr(0, file.size() - kRows.size());
    if (!check_backup_name(name).ok()) continue;
    auto row = read_backup_header(rows_path(name));
    if (row.status().code() == StatusCode::kNotFound) continue;  // removed meanwhile
    rows.push_back(row.ok() ? std::move(*row) : msg::BackupRow());
    rows.back().name = name;
    if (!row.ok()) rows.back().fault = row.status().message();
  }
  std::ranges::sort(rows, std::greater(), [](const msg::BackupRow& row) {
    return std::pair(row.created_unix_ms, row.name);
  });
  return rows;
}

Result<std::vector<Digest>> BackupFolder::named_values(const std::vector<msg::BackupRow>& rows,
                                                       const GoOn& go_on) const {
  constexpr std::size_t kStep = 4096;
  std::vector<Digest> named;
  for (const msg::BackupRow& row : rows) {
    std::size_t seen = 0;
    PRECIS_TRY(
        visit_rows(rows_path(row.name), {[&](Table table, std::string_view, Bytes value) -> Status {
                     if (++seen % kStep == 0) PRECIS_TRY(go_on());
                     if (table != Table::kPayload) return {};
                     PRECIS_ASSIGN(const ValueRow stored, decode_value_row(value));
                     named.push_back(stored.name);
                     return {};
                   }}));
    // Backups share most of their values.
    std::ranges::sort(named);
    named.erase(std::ranges::unique(named).begin(), named.end());
  }
  return named;
}

Status BackupFolder::keep(std::uint32_t keep, const GoOn& go_on) {
  PRECIS_ASSIGN(std::vector<msg::BackupRow> rows, list());
  for (const msg::BackupRow& row : rows) {  // its time is unknown, and it may be whole
    if (row.fault.empty()) continue;
    return Status::corruption("the backup '" + row.name +
                              "' is unreadable, so nothing is removed: " + row.fault + "; remove " +
                              rows_path(row.name) + " by hand");
  }
  if (keep > 0 && rows.size() > keep) {
    for (std::size_t i = keep; i < rows.size(); ++i) {
      if (::unlink(rows_path(rows[i].name).c_str()) != 0) {
        return system_error("removing " + rows_path(rows[i].name));
      }
    }
    rows.resize(keep);
    PRECIS_TRY(sync_folder(dir_));  // before a value that they name is removed
  }
  PRECIS_ASSIGN(const std::vector<Digest> named, named_values(rows, go_on));
  return values_.remove_others(named);
}

}  // namespace precis
