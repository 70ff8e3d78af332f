#include "cachesvc/backup/restore.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "cachesvc/backup/backup_folder.h"
#include "cachesvc/backup/rows_file.h"
#include "cachesvc/base/private_dir.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/store/extent_store.h"

namespace precis {
namespace {

constexpr std::size_t kBatchBytes = 32u << 20;
constexpr std::size_t kIdBytes = sizeof(SegmentId);

// Rows and values on their way into the new store.
class Batch {
 public:
  explicit Batch(Store& store) : store_(store) {}

  Status add(Table table, std::string_view key, std::vector<std::byte> value) {
    size_bytes_ += key.size() + value.size();
    values_.push_back(std::move(value));
    batch_.puts.push_back({table, std::string(key), values_.back()});
    return size_bytes_ < kBatchBytes ? Status() : write();
  }
  Status write() {
    PRECIS_TRY(store_.write(batch_, Durability::kWal));
    batch_ = {};
    values_.clear();
    size_bytes_ = 0;
    return {};
  }

 private:
  Store& store_;
  StoreBatch batch_;
  std::deque<std::vector<std::byte>> values_;
  std::size_t size_bytes_ = 0;
};

void note_fault(Restored& restored, const Status& fault) {
  ++restored.faults;
  if (restored.named.size() < kNamedFaultsMax) restored.named.push_back(fault.message());
}

// `batch` is null to check only.
Result<Restored> read_backup(BackupFolder& folder, const std::string& name, Batch* batch) {
  PRECIS_TRY(check_backup_name(name));
  const std::string path = folder.rows_path(name);
  Restored restored;
  PRECIS_ASSIGN(restored.backup, read_backup_header(path));
  restored.backup.name = name;
  std::set<std::string, std::less<>> faulty;  // beginnings of the keys of faulty values
  const auto on_row = [&](Table table, std::string_view key, Bytes value) -> Status {
    if (table == Table::kMeta && (is_stores_own(key) || key == kRestoringKey)) {
      return Status::corruption(path + " has a row that no backup has: '" + std::string(key) + "'");
    }
    if (table != Table::kPayload) {
      if (batch && table == Table::kSegments && faulty.contains(key)) {
        SegmentId id;  // its key is the id
        std::ranges::copy(key, id.bytes.begin());
        PRECIS_TRY(batch->add(Table::kMeta, quarantine_key(id), {}));
      }
      return batch ? batch->add(table, key, {value.begin(), value.end()}) : Status();
    }
    PRECIS_ASSIGN(const ValueRow row, decode_value_row(value));
    auto bytes = folder.values().read(row.name, row.size_bytes);
    if (!bytes.ok()) {
      note_fault(restored, bytes.status());
      faulty.emplace(key.substr(0, kIdBytes));
      return {};
    }
    ++restored.values;
    restored.bytes += bytes->size();
    return batch ? batch->add(table, key, std::move(*bytes)) : Status();
  };
  PRECIS_TRY(visit_rows(path, {on_row}));
  if (!batch) return restored;
  PRECIS_TRY(batch->write());
  return restored;
}

Status check_empty(const std::string& dir) {
  std::error_code error;
  const bool is_empty =
      !std::filesystem::exists(dir, error) || std::filesystem::is_empty(dir, error);
  if (is_empty && !error) return {};
  return Status::conflict(dir + " is not an empty directory: name a new one, or empty it");
}

}  // namespace

std::string no_backup_in(const std::string& backup_dir) {
  return "there is no backup in " + backup_dir +
         ": a folder of backups (backup_dir of the service) has a file NAME.rows for each, and the "
         "folder values";
}

Result<std::string> newest_backup(const std::string& backup_dir) {
  PRECIS_ASSIGN(const std::vector<msg::BackupRow> rows, BackupFolder(backup_dir).list());
  for (const msg::BackupRow& row : rows) {
    if (row.fault.empty()) return row.name;
  }
  if (rows.empty()) return Status::not_found(no_backup_in(backup_dir));
  return Status::not_found("no backup in " + backup_dir + " can be read: " + rows.front().fault);
}

Result<Restored> check_backup(const std::string& backup_dir, const std::string& name) {
  BackupFolder folder(backup_dir);
  return read_backup(folder, name, nullptr);
}

Result<Restored> restore_backup(const std::string& backup_dir, const std::string& name,
                                const std::string& data_dir) {
  BackupFolder folder(backup_dir);
  PRECIS_TRY(read_backup_header(folder.rows_path(name)).status());
  PRECIS_TRY(check_empty(data_dir));
  (void)make_private(data_dir);
  PRECIS_ASSIGN(const std::unique_ptr<Store> store, open_disk_store(data_dir));
  // Until the end, no service opens the directory.
  const std::string unfinished(kRestoringKey);
  const std::array<std::byte, 1> mark{};
  PRECIS_TRY(store->write({{{Table::kMeta, unfinished, mark}}, {}}, Durability::kFsync));
  Batch batch(*store);
  PRECIS_ASSIGN(Restored restored, read_backup(folder, name, &batch));
  PRECIS_TRY(store->harden());
  PRECIS_TRY(store->write({{}, {{Table::kMeta, unfinished}}}, Durability::kFsync));
  return restored;
}

}  // namespace precis
