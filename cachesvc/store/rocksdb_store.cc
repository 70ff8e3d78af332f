// Rows in RocksDB. Only this file turns rocksdb::Status into Status.
#include "cachesvc/store/rocksdb_store.h"

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "cachesvc/store/deleted_files.h"
#include "cachesvc/store/rocksdb_options.h"
#include "cachesvc/store/rocksdb_snapshot.h"
#include "cachesvc/store/store_lock.h"
#include "cachesvc/store/store_remains.h"
#include "cachesvc/store/table_check.h"

namespace precis {
namespace {

const char* const kFormatKey = "store.format";

// ---- errors

// Errors of opening. A missing file that RocksDB's file list names is kCorruption, like a damaged
// one. For missing permissions RocksDB has no code, only the system's message.
Status cannot_open(const rocksdb::Status& status, const std::string& dir) {
  const std::string what = "opening the store in " + dir;
  const std::string message = what + ": " + status.ToString();
  if (status.IsPathNotFound()) return Status::corruption(message);
  if (status.IsNotSupported()) {
    return Status::version(message + "; use the release that wrote it, or another directory");
  }
  if (status.IsMemoryLimit()) return Status::unavailable(message);
  for (const int error : {EACCES, EPERM}) {
    if (status.IsIOError() && status.ToString().find(std::strerror(error)) != std::string::npos) {
      return not_ours(dir, status.ToString());
    }
  }
  const Status other = from_rocksdb(status, what);
  if (other.code() != StatusCode::kUnavailable) return other;
  return Status::unavailable(message + "; check its disk, or choose another directory");
}

rocksdb::Slice slice_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// On a full disk RocksDB polls in its own thread, and refuses Resume() meanwhile. Without polling,
// the store's next write calls Resume().
class NoPolling final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

// ---- the store

class RocksdbStore final : public RowStore {
 public:
  RocksdbStore(std::string dir, std::shared_ptr<SpaceGuard> guard, StoreLock lock, rocksdb::DB* db,
               std::vector<rocksdb::ColumnFamilyHandle*> handles)
      : dir_(std::move(dir)),
        guard_(std::move(guard)),
        lock_(std::move(lock)),
        db_(db),
        handles_(std::move(handles)) {}

  ~RocksdbStore() override {
    (void)admit(WriteUse::kMakeRoom, bytes_to_flush());  // closing flushes
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
    db_->Close();  // flushes batches written without WAL
  }

  Status write(const RowBatch& batch, Durability durability) override {
    std::size_t size_bytes = 0;
    for (const RowBatch::Put& put : batch.puts) {
      if (put.value.size() > kValueBytesMax) {
        return Status::invalid(key_text(put.table, put.key) + ": value of " +
                               std::to_string(put.value.size()) + " B exceeds " +
                               std::to_string(kValueBytesMax) + " B");
      }
      size_bytes += put.key.size() + put.value.size() + kBatchOverheadBytes;
    }
    // Allocated once, so a large batch does not grow by copies.
    rocksdb::WriteBatch changes(size_bytes);
    for (const RowBatch::Put& put : batch.puts) {
      changes.Put(family(put.table), put.key, slice_of(put.value));
    }
    for (const RowBatch::Delete& gone : batch.deletes) {
      changes.Delete(family(gone.table), gone.key);
    }
    rocksdb::WriteOptions how;
    how.disableWAL = durability == Durability::kMemory;
    how.sync = durability == Durability::kFsync;
    PRECIS_TRY(check_linked(/*with_log=*/!how.disableWAL));
    const bool makes_room = batch.makes_room || !batch.deletes.empty();
    PRECIS_TRY(admit(makes_room ? WriteUse::kMakeRoom : WriteUse::kRows, size_bytes));
    dirty_ = true;
    unflushed_bytes_ += size_bytes;
    const rocksdb::Status status =
        attempt_twice(!how.disableWAL, [&] { return db_->Write(how, &changes); });
    dirty_ = true;  // a flush may have reset it meanwhile
    return from_rocksdb(status,
                        "writing " + std::to_string(size_bytes) + " B to the store in " + dir_);
  }

  // Locks exclusively: a log that fails while a flush closes it would end the process, too.
  Status harden() override {
    std::unique_lock lock(changes_);
    if (!dirty_) return {};
    PRECIS_TRY(check_linked(/*with_log=*/false));
    PRECIS_TRY(admit(WriteUse::kMakeRoom, bytes_to_flush()));
    dirty_ = false;
    const auto flush = [&] { return db_->Flush({}, handles_); };
    rocksdb::Status status = attempt(/*logs=*/false, flush);
    if (status.IsIOError() && recover()) status = attempt(false, flush);
    if (status.ok()) unflushed_bytes_ = 0;
    if (status.ok()) (void)mark_log();
    if (!status.ok()) dirty_ = true;
    return from_rocksdb(status, "flushing the store in " + dir_);
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return get_row(*db_, {}, family(table), table, key);
  }

  Status scan(Table table, const VisitRow& row) override {
    return scan_rows(*db_, {}, family(table), table, row);
  }

  Result<std::unique_ptr<RowSnapshot>> snapshot() override {
    return std::unique_ptr<RowSnapshot>(std::make_unique<RocksdbSnapshot>(*db_, handles_));
  }

  RowStats stats() override { return {.disk_bytes = bytes_of_files(dir_)}; }

  // Like check_linked(), but for all files that a start needs.
  Status check() override {
    PRECIS_TRY(deleted_.check_directory());
    PRECIS_TRY(check_linked(/*with_log=*/true));
    // A compaction may remove tables after they were listed.
    const auto missing = DeletedFiles::missing_twice([this] { return missing_tables(); });
    if (missing) return deleted_.found(dir_ + *missing);
    std::error_code error;
    const bool current = std::filesystem::exists(dir_ + "/CURRENT", error);
    return current || error ? Status() : deleted_.found(dir_ + "/CURRENT");
  }

  // kVersionMismatch if another build's format is stored. Writes the format into a new store.
  Status check_format() {
    (void)mark_log();
    const auto stored = get(Table::kMeta, kFormatKey);
    if (stored.status().code() == StatusCode::kNotFound) {
      std::array<std::byte, sizeof kStoreFormat> value;
      std::memcpy(value.data(), &kStoreFormat, sizeof kStoreFormat);
      return write({{{Table::kMeta, kFormatKey, value}}, {}}, Durability::kFsync);
    }
    PRECIS_TRY(stored.status());
    return check_stored_format(dir_, *stored);
  }

 private:
  rocksdb::ColumnFamilyHandle* family(Table table) const {
    return handles_[static_cast<std::size_t>(table)];
  }

  // ---- room and files

  Status admit(WriteUse use, std::uint64_t size_bytes) const {
    return guard_ ? guard_->admit(use, size_bytes) : Status();
  }

  // Returns an upper bound of the bytes in memtables. Both figures may be too large: RocksDB also
  // flushes by itself, and it counts memory in large pieces.
  std::uint64_t bytes_to_flush() const {
    std::uint64_t memtable_bytes = 0;
    const bool known = db_->GetAggregatedIntProperty(rocksdb::DB::Properties::kCurSizeAllMemTables,
                                                     &memtable_bytes);
    return known ? std::min(memtable_bytes, unflushed_bytes_.load()) : unflushed_bytes_.load();
  }

  // kUnavailable if something deleted the files that a change is written to. RocksDB would continue
  // to write to a file that no restart finds.
  Status check_linked(bool with_log) {
    PRECIS_TRY(deleted_.check());
    std::unique_ptr<rocksdb::LogFile> log;
    if (!with_log || !db_->GetCurrentWalFile(&log).IsPathNotFound()) return {};
    // A flush may have replaced the log.
    if (!db_->GetCurrentWalFile(&log).IsPathNotFound()) return {};
    return deleted_.found("RocksDB's log in " + dir_);
  }

  std::vector<std::string> missing_tables() {
    std::vector<std::string> missing;
    std::vector<rocksdb::LiveFileMetaData> tables;
    db_->GetLiveFilesMetaData(&tables);
    for (const auto& table : tables) {
      std::error_code error;
      if (!std::filesystem::exists(dir_ + table.name, error) && !error) {
        missing.push_back(table.name);
      }
    }
    return missing;
  }

  // ---- failures

  // Callers hold changes_. `logs`: the change is written to the log.
  template <typename Change>
  rocksdb::Status attempt(bool logs, const Change& change) {
    if (!broken_.ok()) return broken_;
    const rocksdb::Status status = change();
    if (status.IsIOError() && !refuses_.exchange(true)) failed_log_ = logs ? log_number() : 0;
    return status;
  }

  // After a failure RocksDB refuses all changes until Resume(). If the disk has room again, the
  // service recovers here, with no other change in progress.
  template <typename Change>
  rocksdb::Status attempt_twice(bool logs, const Change& change) {
    rocksdb::Status status;
    {
      std::shared_lock lock(changes_);
      status = attempt(logs, change);
      if (!status.IsIOError()) return status;
    }
    std::unique_lock lock(changes_);
    if (refuses_ && !recover()) return broken_.ok() ? status : broken_;
    return attempt(logs, change);
  }

  // Callers hold changes_ exclusively. A log that failed must not be written again: RocksDB would
  // end the process. Resume() starts a new log, except if the failed log is empty.
  bool recover() {
    if (guard_) guard_->release_reserve();
    if (!db_->Resume().ok()) return false;
    if (failed_log_ != 0 && log_number() == failed_log_) {
      broken_ = rocksdb::Status::Aborted(
          "the first row of a new log could not be written, and RocksDB cannot continue after "
          "that; stored data is still served: free disk space and restart the service");
      return false;
    }
    refuses_ = false;
    (void)mark_log();
    return true;
  }

  // Ensures that no log is empty.
  rocksdb::Status mark_log() {
    return attempt(true, [&] { return db_->Put({}, handles_.back(), "", ""); });
  }

  std::uint64_t log_number() const {
    std::unique_ptr<rocksdb::LogFile> log;
    return db_->GetCurrentWalFile(&log).ok() ? log->LogNumber() : 0;
  }

  const std::string dir_;
  const std::shared_ptr<SpaceGuard> guard_;  // may be null
  const StoreLock lock_;                     // destroyed after the database
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // by Table, then RocksDB's default
  std::atomic<bool> dirty_ = true;                  // may have been written since the last flush
  std::atomic<std::uint64_t> unflushed_bytes_ = 0;  // written since harden() flushed
  // Locked shared to change something, exclusively to flush or to recover from a failure.
  std::shared_mutex changes_;
  std::atomic<bool> refuses_ = false;
  // Written under changes_ by the first thread that sees a failure, and by recover().
  std::uint64_t failed_log_ = 0;  // 0: the failure was not in a log
  rocksdb::Status broken_;
  DeletedFiles deleted_{dir_, lock_.get()};
};

// A newer build may have further tables. If this build opened the store, their rows would be lost.
Status check_families(const rocksdb::DBOptions& options, const std::string& dir) {
  std::vector<std::string> names;
  const rocksdb::Status status = rocksdb::DB::ListColumnFamilies(options, dir, &names);
  if (status.IsPathNotFound() || status.IsNotFound()) return {};  // no store yet
  if (status.IsIOError() && !std::filesystem::exists(dir + "/CURRENT")) return {};
  if (!status.ok()) return cannot_open(status, dir);
  for (const std::string& name : names) {
    const bool known =
        name == rocksdb::kDefaultColumnFamilyName ||
        std::find(kFamilyNames.begin(), kFamilyNames.end(), name) != kFamilyNames.end();
    if (!known) {
      return Status::version("store in " + dir + " has a table '" + name +
                             "' that this build does not know: use the newer build that wrote it");
    }
  }
  return {};
}

}  // namespace

Status from_rocksdb(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return {};
  const std::string message = what + ": " + status.ToString();
  if (status.IsNoSpace() || status.IsMemoryLimit()) return Status::out_of_space(message);
  if (status.IsNotFound()) return Status::not_found(message);
  if (status.IsCorruption()) return Status::corruption(message);
  if (status.IsInvalidArgument() || status.IsNotSupported()) return Status::internal(message);
  return Status::unavailable(message);
}

Result<std::unique_ptr<RowStore>> open_rocksdb_store(const std::string& dir,
                                                     const RocksdbStoreOptions& options) {
  PRECIS_TRY(make_directory(dir));
  PRECIS_ASSIGN(StoreLock lock, lock_store(dir));
  PRECIS_TRY(check_remains(dir));
  PRECIS_TRY(check_tables(dir));
  const DiskBudget budget = budget_of(options);
  if (options.guard) PRECIS_TRY(make_room_to_open(*options.guard, dir));
  rocksdb::DBOptions db_opts = db_options(dir, options);
  db_opts.listeners.push_back(std::make_shared<NoPolling>());
  PRECIS_TRY(check_families(db_opts, dir));
  if (options.kept_logs) options.kept_logs->keep();
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(db_opts, dir, families(budget), &handles, &db);
  // RocksDB has not changed the logs if it did not open.
  if (!status.ok() && options.kept_logs) options.kept_logs->remove_latest();
  if (!status.ok()) return cannot_open(status, dir);
  auto store =
      std::make_unique<RocksdbStore>(dir, options.guard, std::move(lock), db, std::move(handles));
  PRECIS_TRY(store->check_format());
  if (options.guard) options.guard->restore_reserve();
  return std::unique_ptr<RowStore>(std::move(store));
}

}  // namespace precis
