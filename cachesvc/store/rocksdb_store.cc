// The one file that knows RocksDB; rocksdb::Status becomes Status here and nowhere else.
#include "cachesvc/store/rocksdb_store.h"

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
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

#include "cachesvc/store/store_lock.h"

namespace precis {
namespace {

// ---- names and sizes

// By Table's value. Names are stored: append only.
constexpr std::array<std::string_view, kTableCount> kFamilyNames = {
    "segments", "payload", "sessions", "models", "budgets", "meta", "projections", "profiles"};
const char* const kFormatKey = "store.format";
constexpr std::uint32_t kFormat = 2;  // 1 held payload in blob files

// RocksDB stores value sizes in 32 bits; far above any row.
constexpr std::size_t kValueBytesMax = std::size_t{3} << 30;
// Per value beside key and value: type, family, two lengths of at most five bytes.
constexpr std::size_t kBatchOverheadBytes = 16;
constexpr std::size_t kMemtableBytes = 16u << 20;
constexpr std::size_t kLogFileBytesMax = 4u
                                         << 20;  // RocksDB's own information log, in the data dir
constexpr std::size_t kLogFilesMax = 4;
constexpr int kOpenFilesMax = 512;  // half of the usual limit of 1024 descriptors

// ---- errors

Status from_rocksdb(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return {};
  const std::string message = what + ": " + status.ToString();
  if (status.IsNoSpace() || status.IsMemoryLimit()) return Status::out_of_space(message);
  if (status.IsNotFound()) return Status::not_found(message);
  if (status.IsCorruption()) return Status::corruption(message);
  if (status.IsInvalidArgument() || status.IsNotSupported()) return Status::internal(message);
  return Status::unavailable(message);
}

// Of opening. A file that RocksDB's list of them names is missing as damaged ones are; for what may
// not be read it has no code, only the machine's words.
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
  return Status::unavailable(message + "; look after its disk, or choose another directory");
}

std::string key_text(Table table, const std::string& key) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text(kFamilyNames[static_cast<std::size_t>(table)]);
  text += " row ";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

// ---- options

rocksdb::Slice slice_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// RocksDB polls a full disk in a thread of its own and meanwhile refuses to be told that there is
// room again. The store tells it, with the next write.
class NoPolling final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::DBOptions db_options(const RocksdbStoreOptions& options) {
  rocksdb::DBOptions db;
  if (options.env) db.env = options.env;
  db.create_if_missing = true;
  db.create_missing_column_families = true;
  // A batch without WAL (Durability::kMemory) spans families; only an atomic flush keeps it whole.
  db.atomic_flush = true;
  db.max_open_files = kOpenFilesMax;
  db.max_log_file_size = kLogFileBytesMax;
  db.keep_log_file_num = kLogFilesMax;
  db.stats_dump_period_sec = 0;
  db.listeners.push_back(std::make_shared<NoPolling>());
  return db;
}

rocksdb::ColumnFamilyOptions family_options() {
  rocksdb::ColumnFamilyOptions family;
  family.write_buffer_size = kMemtableBytes;
  return family;
}

std::vector<rocksdb::ColumnFamilyDescriptor> families() {
  std::vector<rocksdb::ColumnFamilyDescriptor> all;
  for (std::size_t t = 0; t < kTableCount; ++t) {
    all.emplace_back(std::string(kFamilyNames[t]), family_options());
  }
  // Holds nothing but the marks of logs.
  all.emplace_back(rocksdb::kDefaultColumnFamilyName, family_options());
  return all;
}

// ---- the store

class RocksdbStore final : public Store {
 public:
  RocksdbStore(std::string dir, Descriptor lock, rocksdb::DB* db,
               std::vector<rocksdb::ColumnFamilyHandle*> handles)
      : dir_(std::move(dir)), lock_(std::move(lock)), db_(db), handles_(std::move(handles)) {}

  ~RocksdbStore() override {
    for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
    db_->Close();  // Flushes what was written without WAL.
  }

  Status write(const StoreBatch& batch, Durability durability) override {
    std::size_t size_bytes = 0;
    for (const StoreBatch::Put& put : batch.puts) {
      if (put.value.size() > kValueBytesMax) {
        return Status::invalid(key_text(put.table, put.key) + ": value of " +
                               std::to_string(put.value.size()) + " B exceeds " +
                               std::to_string(kValueBytesMax) + " B");
      }
      size_bytes += put.key.size() + put.value.size() + kBatchOverheadBytes;
    }
    // Sized at once: a large batch must not grow by copies.
    rocksdb::WriteBatch changes(size_bytes);
    for (const StoreBatch::Put& put : batch.puts) {
      changes.Put(family(put.table), put.key, slice_of(put.value));
    }
    for (const StoreBatch::Delete& gone : batch.deletes) {
      changes.Delete(family(gone.table), gone.key);
    }
    rocksdb::WriteOptions how;
    how.disableWAL = durability == Durability::kMemory;
    how.sync = durability == Durability::kFsync;
    dirty_ = true;
    const rocksdb::Status status =
        attempt_twice(!how.disableWAL, [&] { return db_->Write(how, &changes); });
    dirty_ = true;  // a flush may have come between
    return from_rocksdb(status,
                        "writing " + std::to_string(size_bytes) + " B to the store in " + dir_);
  }

  // Alone: a log that fails while a flush closes it would end the process, too.
  Status harden() override {
    std::unique_lock lock(changes_);
    if (!dirty_.exchange(false)) return {};
    const auto flush = [&] { return db_->Flush({}, handles_); };
    rocksdb::Status status = attempt(/*logs=*/false, flush);
    if (status.IsIOError() && recover()) status = attempt(false, flush);
    if (status.ok()) (void)mark_log();
    if (!status.ok()) dirty_ = true;
    return from_rocksdb(status, "flushing the store in " + dir_);
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    rocksdb::PinnableSlice value;
    PRECIS_TRY(read(table, key, &value));
    const auto* const data = reinterpret_cast<const std::byte*>(value.data());
    return std::vector<std::byte>(data, data + value.size());
  }

  Status read_into(Table table, const std::string& key, MutableBytes into) override {
    rocksdb::PinnableSlice value;
    PRECIS_TRY(read(table, key, &value));
    if (value.size() != into.size()) {
      return Status::corruption(key_text(table, key) + ": " + std::to_string(value.size()) +
                                " B are stored, " + std::to_string(into.size()) + " B expected");
    }
    if (!into.empty()) std::memcpy(into.data(), value.data(), into.size());
    return {};
  }

  Status scan(Table table,
              const std::function<Status(std::string_view key, Bytes value)>& row) override {
    rocksdb::ReadOptions how;
    how.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(how, family(table)));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const rocksdb::Slice value = it->value();
      PRECIS_TRY(row({it->key().data(), it->key().size()},
                     {reinterpret_cast<const std::byte*>(value.data()), value.size()}));
    }
    return from_rocksdb(it->status(),
                        "scanning " + std::string(kFamilyNames[static_cast<std::size_t>(table)]));
  }

  StoreStats stats() override {
    StoreStats stats;
    std::error_code error;
    for (std::filesystem::directory_iterator file(dir_, error), end; !error && file != end;
         file.increment(error)) {
      std::error_code gone;  // A file may go while the folder is read; it then counts nothing.
      const auto size_bytes = file->file_size(gone);
      if (!gone) stats.disk_bytes += size_bytes;
    }
    return stats;
  }

  // kVersionMismatch if a newer build wrote the store; marks a new one as ours.
  Status check_format() {
    (void)mark_log();
    const auto stored = get(Table::kMeta, kFormatKey);
    if (stored.status().code() == StatusCode::kNotFound) {
      std::array<std::byte, sizeof kFormat> value;
      std::memcpy(value.data(), &kFormat, sizeof kFormat);
      return write({{{Table::kMeta, kFormatKey, value}}, {}}, Durability::kFsync);
    }
    PRECIS_TRY(stored.status());
    std::uint32_t format = 0;
    if (stored->size() != sizeof format) {
      return Status::corruption("store in " + dir_ + ": its format row has " +
                                std::to_string(stored->size()) + " B, not 4");
    }
    std::memcpy(&format, stored->data(), sizeof format);
    if (format < kFormat) {
      return Status::version("store in " + dir_ + " has format " + std::to_string(format) +
                             " of an older build, this one reads " + std::to_string(kFormat) +
                             ": use that build, or another data directory");
    }
    if (format > kFormat) {
      return Status::version("store in " + dir_ + " has format " + std::to_string(format) +
                             ", this build reads up to " + std::to_string(kFormat) +
                             ": use the newer build that wrote it");
    }
    return {};
  }

 private:
  rocksdb::ColumnFamilyHandle* family(Table table) const {
    return handles_[static_cast<std::size_t>(table)];
  }

  // With changes_ held. `logs`: whether the change goes through the log.
  template <typename Change>
  rocksdb::Status attempt(bool logs, const Change& change) {
    if (!broken_.ok()) return broken_;
    const rocksdb::Status status = change();
    if (status.IsIOError() && !refuses_.exchange(true)) failed_log_ = logs ? log_number() : 0;
    return status;
  }

  // After a failure RocksDB refuses all changes until it is told to go on: if the disk has room
  // again this is where the service recovers. Nobody else changes anything meanwhile.
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

  // With changes_ held alone. A log that failed must not be written to again, RocksDB ends the
  // process then. Going on begins a new log, but for one that nothing has been written to.
  bool recover() {
    if (!db_->Resume().ok()) return false;
    if (failed_log_ != 0 && log_number() == failed_log_) {
      broken_ = rocksdb::Status::Aborted(
          "the first row of a new log could not be written, after which RocksDB cannot go on; what "
          "is stored is served: make room and restart the service");
      return false;
    }
    refuses_ = false;
    (void)mark_log();
    return true;
  }

  // So that no log is one that nothing has been written to.
  rocksdb::Status mark_log() {
    return attempt(true, [&] { return db_->Put({}, handles_.back(), "", ""); });
  }

  std::uint64_t log_number() const {
    std::unique_ptr<rocksdb::LogFile> log;
    return db_->GetCurrentWalFile(&log).ok() ? log->LogNumber() : 0;
  }

  Status read(Table table, const std::string& key, rocksdb::PinnableSlice* value) {
    const rocksdb::Status status = db_->Get({}, family(table), key, value);
    return status.ok() ? Status() : from_rocksdb(status, key_text(table, key));
  }

  const std::string dir_;
  const Descriptor lock_;  // outlives what it guards
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // by Table, then RocksDB's default
  std::atomic<bool> dirty_ = true;  // perhaps written to since the last flush
  // Held by who changes something, alone by who flushes or recovers from a failure.
  std::shared_mutex changes_;
  std::atomic<bool> refuses_ = false;
  // Written under changes_ by who sees the failure first, and by who recovers.
  std::uint64_t failed_log_ = 0;  // 0: it was no log
  rocksdb::Status broken_;
};

// A store that has lost CURRENT, which says what belongs to it, looks like none: RocksDB would make
// a new one in its place, to which the values beside it mean nothing. Of its files, and of the
// payload's, which are numbered, none is made before CURRENT is.
Status check_remains(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(dir + "/CURRENT", error)) return {};
  for (const std::string& folder : {dir, dir + "/payload"}) {
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const fs::path suffix = entry->path().extension();
      if (suffix != ".sst" && suffix != ".log" && suffix != ".extents") continue;
      const std::string number = entry->path().stem().string();
      if (number.find_first_not_of("0123456789") != std::string::npos) continue;
      return Status::corruption("opening the store in " + dir + ": " + entry->path().string() +
                                " is there, and no CURRENT that says what it belongs to");
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return not_listed(error.value(), folder);
    }
  }
  return {};
}

// A newer build may have tables of its own; opened without them they would be lost on its return.
Status check_families(const rocksdb::DBOptions& options, const std::string& dir) {
  std::vector<std::string> names;
  const rocksdb::Status status = rocksdb::DB::ListColumnFamilies(options, dir, &names);
  if (status.IsPathNotFound() || status.IsNotFound()) return {};  // none yet
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

Result<std::unique_ptr<Store>> open_rocksdb_store(const std::string& dir,
                                                  const RocksdbStoreOptions& options) {
  PRECIS_TRY(make_directory(dir));
  PRECIS_ASSIGN(Descriptor lock, lock_store(dir));
  PRECIS_TRY(check_remains(dir));
  const rocksdb::DBOptions db_opts = db_options(options);
  PRECIS_TRY(check_families(db_opts, dir));
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(db_opts, dir, families(), &handles, &db);
  if (!status.ok()) return cannot_open(status, dir);
  auto store = std::make_unique<RocksdbStore>(dir, std::move(lock), db, std::move(handles));
  PRECIS_TRY(store->check_format());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace precis
