#include "cachesvc/backup/make_backup.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cachesvc/backup/plain_files.h"
#include "cachesvc/backup/rows_file.h"
#include "cachesvc/backup/value_check.h"
#include "cachesvc/base/executor.h"
#include "precis/block_digest.h"
#include "precis/limits.h"

namespace precis {
namespace {

class Copy {
 public:
  Copy(BackupFolder& folder, const BackupPlan& plan, RowsWriter rows, Descriptor begun,
       const std::function<Status(const BackupProgress&)>& told)
      : folder_(folder),
        plan_(plan),
        rows_(std::move(rows)),
        begun_(std::move(begun)),
        told_(told) {}
  // Whether the copy failed because the folder's disk is full.
  bool folder_is_full() const { return folder_is_full_; }

  Status payload(StoreSnapshot& snapshot, ValueCheck& checks) {
    PRECIS_ASSIGN(const std::vector<StoreSnapshot::Value> values, snapshot.values());
    done_.values = values.size();
    for (const StoreSnapshot::Value& value : values) done_.bytes += value.place.size;
    for (const StoreSnapshot::Value& value : values) {
      auto bytes = snapshot.read(value);
      Status status = bytes.status();
      if (status.ok()) status = checks.check(value.key, *bytes);
      if (status.code() == StatusCode::kCorruption) {
        note_damage(checks, value.key, status);
      } else {
        PRECIS_TRY(status);
        PRECIS_TRY(add(value.key, *bytes));
      }
      ++done_.done_values;
      done_.done_bytes += value.place.size;
      yield_if_asked(value.place.size);
      PRECIS_TRY(told_(done_));
    }
    snapshot.release_payload();
    return {};
  }

  // All tables but the payload, and a mark for each segment with a damaged value.
  Status rows(RowSnapshot& snapshot) {
    constexpr std::size_t kRowsAtOnce = 1024, kRowsBytes = 1u << 20;
    std::size_t seen = 0;
    for (std::size_t t = 0; t < kTableCount; ++t) {
      const auto table = static_cast<Table>(t);
      if (table == Table::kPayload) continue;
      PRECIS_TRY(snapshot.scan(table, [&](std::string_view key, Bytes value) -> Status {
        if (++seen % kRowsAtOnce == 0) {
          PRECIS_TRY(check_room(kRowsBytes));
          PRECIS_TRY(told_(done_));
        }
        if (table == Table::kMeta) marks_.erase(std::string(key));
        return is_stores_own(key) ? Status() : rows_.add(table, key, value);
      }));
    }
    for (const std::string& mark : marks_) PRECIS_TRY(rows_.add(Table::kMeta, mark, {}));
    return {};
  }

  // Values first, so that no complete backup names one that a crash of the machine destroyed.
  Status finish(const std::string& unfinished) {
    PRECIS_TRY(sync_file_system(begun_, folder_.dir()));
    PRECIS_TRY(rows_.finish({.created_unix_ms = plan_.now_unix_ms,
                             .values = done_.values - done_.damaged,
                             .bytes = stored_bytes_,
                             .copied_values = done_.copied_values,
                             .copied_bytes = done_.copied_bytes,
                             .damaged = done_.damaged}));
    PRECIS_TRY(rename_plain(unfinished, folder_.rows_path(plan_.name)));
    return sync_folder(folder_.dir());
  }

 private:
  Status add(const std::string& key, Bytes value) {
    const Digest name = sha256(value);
    // A file may be damaged, or have lost its bytes in a crash of the machine.
    if (!folder_.values().has(name, value.size()) ||
        !folder_.values().read(name, value.size()).ok()) {
      PRECIS_TRY(check_room(value.size()));
      const Status written = folder_.values().write(name, value);
      folder_is_full_ = written.code() == StatusCode::kOutOfSpace;
      PRECIS_TRY(written);
      ++done_.copied_values;
      done_.copied_bytes += value.size();
    }
    stored_bytes_ += value.size();
    return rows_.add(Table::kPayload, key, encode_value_row({name, value.size()}));
  }

  Status check_room(std::uint64_t size_bytes) {
    PRECIS_ASSIGN(const std::uint64_t free_bytes, free_bytes_of(folder_.dir()));
    if (free_bytes >= plan_.leave_free_bytes && free_bytes - plan_.leave_free_bytes >= size_bytes) {
      return {};
    }
    folder_is_full_ = true;
    return Status::out_of_space(
        "the disk of " + folder_.dir() + " has " + std::to_string(free_bytes) +
        " B free, of which " + std::to_string(plan_.leave_free_bytes) +
        " B are left for puts: remove old backups (precisctl backup --keep N), or choose another "
        "disk (backup_dir)");
  }

  void note_damage(const ValueCheck& checks, const std::string& key, const Status& status) {
    ++done_.damaged;
    const std::string line = checks.name_of(key) + ": " + status.message() + "\n";
    if (done_.damage.size() + line.size() <= limits::kTextBytesMax) done_.damage += line;
    if (std::string mark = checks.mark_of(key); !mark.empty()) marks_.insert(std::move(mark));
  }

  BackupFolder& folder_;
  const BackupPlan& plan_;
  RowsWriter rows_;
  const Descriptor begun_;  // of the folder
  const std::function<Status(const BackupProgress&)>& told_;
  bool folder_is_full_ = false;
  BackupProgress done_;
  std::uint64_t stored_bytes_ = 0;
  std::set<std::string> marks_;
};

Status copy_all(Store& store, BackupFolder& folder, const BackupPlan& plan,
                const std::string& unfinished,
                const std::function<Status(const BackupProgress&)>& told, bool& folder_is_full) {
  // Opened before anything is written, so that its sync reports every error of these writes.
  PRECIS_ASSIGN(Descriptor begun, open_plain(folder.dir()));
  PRECIS_ASSIGN(RowsWriter rows, RowsWriter::create(unfinished));
  Copy copy(folder, plan, std::move(rows), std::move(begun), told);
  PRECIS_ASSIGN(const std::unique_ptr<StoreSnapshot> snapshot, store.snapshot());
  PRECIS_ASSIGN(ValueCheck checks, ValueCheck::open(snapshot->rows()));
  Status status = copy.payload(*snapshot, checks);
  if (status.ok()) status = copy.rows(snapshot->rows());
  if (status.ok()) status = copy.finish(unfinished);
  folder_is_full = copy.folder_is_full();
  return status;
}

}  // namespace

Status make_backup(Store& store, BackupFolder& folder, BackupPlan plan,
                   const std::function<Status(const BackupProgress&)>& told) {
  PRECIS_TRY(check_backup_name(plan.name));
  PRECIS_TRY(folder.open_to_write());
  const std::string path = folder.rows_path(plan.name), unfinished = path + ".new";
  PRECIS_TRY(folder.check_new(plan.name));
  // The newest backup has the latest time, also if the clock was set back.
  PRECIS_ASSIGN(const std::vector<msg::BackupRow> earlier, folder.list());
  if (!earlier.empty()) {
    plan.now_unix_ms = std::max(plan.now_unix_ms, earlier.front().created_unix_ms + 1);
  }
  bool folder_is_full = false;
  Status status = copy_all(store, folder, plan, unfinished, told, folder_is_full);
  std::error_code error;
  if (!status.ok()) std::filesystem::remove(unfinished, error);
  // Another attempt would not fit either, and puts may need the space.
  if (folder_is_full) (void)folder.keep(0);
  return status;
}

}  // namespace precis
