#include "tests/unit/store/forgetful_disk.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace precis::testing {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr std::size_t kSectorBytes = 512;

struct Inode {
  std::string bytes;   // as read now
  std::string synced;  // as of the last sync
};

}  // namespace

struct ForgetfulDisk::State {
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  struct Change {
    std::string name;
    std::shared_ptr<Inode> now;  // null: removed
  };

  // Callers hold mutex. Counts an operation by a file or folder of the era `of`.
  IOStatus operate(std::uint64_t of) {
    if (of != era) return IOStatus::IOError("the power went");
    if (fails_at && operations >= *fails_at) return IOStatus::IOError("the test's disk fails");
    ++operations;
    return IOStatus::OK();
  }
  void set(const std::string& name, std::shared_ptr<Inode> inode) {
    if (inode) {
      names[name] = inode;
    } else {
      names.erase(name);
    }
    journal.push_back({name, std::move(inode)});
  }
  void apply(std::size_t changes) {
    for (std::size_t i = 0; i < changes; ++i) {
      if (journal[i].now) {
        synced_names[journal[i].name] = journal[i].now;
      } else {
        synced_names.erase(journal[i].name);
      }
    }
    journal.clear();
  }

  std::mutex mutex;
  // Guarded by mutex.
  Names names, synced_names;
  std::vector<Change> journal;  // from synced_names to names
  std::uint64_t era = 0;        // number of power losses
  std::uint64_t operations = 0;
  std::optional<std::uint64_t> fails_at;
};

namespace {

using State = std::shared_ptr<ForgetfulDisk::State>;
using Lock = std::lock_guard<std::mutex>;

IOStatus read(const std::string& bytes, std::uint64_t offset, std::size_t size,
              rocksdb::Slice* result, char* scratch) {
  const std::size_t from = std::min<std::uint64_t>(offset, bytes.size());
  const std::size_t got = std::min(size, bytes.size() - from);
  std::memcpy(scratch, bytes.data() + from, got);
  *result = {scratch, got};
  return IOStatus::OK();
}

// Common to all open files: the disk, the file's bytes, and the era in which it was opened.
struct Handle {
  State state;
  std::shared_ptr<Inode> inode;
  std::uint64_t era;
};

class Reader final : public rocksdb::FSRandomAccessFile {
 public:
  explicit Reader(Handle handle) : handle_(std::move(handle)) {}
  IOStatus Read(std::uint64_t offset, std::size_t size, const IOOptions&, rocksdb::Slice* result,
                char* scratch, IODebugContext*) const override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    return status.ok() ? read(handle_.inode->bytes, offset, size, result, scratch) : status;
  }

 private:
  const Handle handle_;
};

class SequentialReader final : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialReader(Handle handle) : handle_(std::move(handle)) {}
  IOStatus Read(std::size_t size, const IOOptions&, rocksdb::Slice* result, char* scratch,
                IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    if (!status.ok()) return status;
    const IOStatus got = read(handle_.inode->bytes, offset_, size, result, scratch);
    offset_ += result->size();
    return got;
  }
  IOStatus Skip(std::uint64_t size) override {
    offset_ += size;
    return IOStatus::OK();
  }

 private:
  const Handle handle_;
  std::uint64_t offset_ = 0;
};

class Writer final : public rocksdb::FSWritableFile {
 public:
  explicit Writer(Handle handle) : handle_(std::move(handle)) {}
  using FSWritableFile::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions&, IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    if (status.ok()) handle_.inode->bytes.append(data.data(), data.size());
    return status;
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions&, IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    if (status.ok()) handle_.inode->bytes.resize(size);
    return status;
  }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    if (status.ok()) handle_.inode->synced = handle_.inode->bytes;
    return status;
  }
  bool IsSyncThreadSafe() const override { return true; }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  std::uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    return handle_.inode->bytes.size();
  }

 private:
  const Handle handle_;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  explicit Directory(Handle handle) : handle_(std::move(handle)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    const Lock lock(handle_.state->mutex);
    const IOStatus status = handle_.state->operate(handle_.era);
    if (status.ok()) handle_.state->apply(handle_.state->journal.size());
    return status;
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  const Handle handle_;
};

class NoLog final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
  std::size_t GetLogFileSize() const override { return 0; }
};

// One folder, whatever directories the paths name.
class FileSystem final : public rocksdb::FileSystem {
 public:
  FileSystem(State state, std::uint64_t era) : state_(std::move(state)), era_(era) {}
  const char* Name() const override { return "ForgetfulFileSystem"; }

  IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext*) override {
    return open<SequentialReader>(name, file);
  }
  IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               IODebugContext*) override {
    return open<Reader>(name, file);
  }
  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext*) override {
    {
      const Lock lock(state_->mutex);
      const IOStatus status = state_->operate(era_);
      if (!status.ok()) return status;
      state_->set(name, std::make_shared<Inode>());
    }
    return open<Writer>(name, file);
  }
  IOStatus NewDirectory(const std::string&, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        IODebugContext*) override {
    const Lock lock(state_->mutex);
    *directory = std::make_unique<Directory>(Handle{state_, nullptr, era_});
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    const Lock lock(state_->mutex);
    return state_->names.contains(name) ? IOStatus::OK() : IOStatus::NotFound(name);
  }
  IOStatus GetChildren(const std::string& folder, const IOOptions&,
                       std::vector<std::string>* children, IODebugContext*) override {
    const Lock lock(state_->mutex);
    children->clear();
    for (const auto& [name, inode] : state_->names) {
      if (name.starts_with(folder + "/")) children->push_back(name.substr(folder.size() + 1));
    }
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    const Lock lock(state_->mutex);
    const IOStatus status = state_->operate(era_);
    if (!status.ok()) return status;
    if (!state_->names.contains(name)) return IOStatus::PathNotFound(name);
    state_->set(name, nullptr);
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    const Lock lock(state_->mutex);
    const IOStatus status = state_->operate(era_);
    if (!status.ok()) return status;
    const auto found = state_->names.find(from);
    if (found == state_->names.end()) return IOStatus::PathNotFound(from);
    const auto inode = found->second;
    state_->set(to, inode);
    state_->set(from, nullptr);
    return IOStatus::OK();
  }
  IOStatus GetFileSize(const std::string& name, const IOOptions&, std::uint64_t* size,
                       IODebugContext*) override {
    const Lock lock(state_->mutex);
    const auto found = state_->names.find(name);
    if (found == state_->names.end()) return IOStatus::PathNotFound(name);
    *size = found->second->bytes.size();
    return IOStatus::OK();
  }
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, std::uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return IOStatus::OK();
  }
  IOStatus CreateDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus CreateDirIfMissing(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus DeleteDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus LockFile(const std::string&, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = new rocksdb::FileLock();
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    delete lock;
    return IOStatus::OK();
  }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<rocksdb::Logger>* logger,
                     IODebugContext*) override {
    *logger = std::make_shared<NoLog>();
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* absolute,
                           IODebugContext*) override {
    *absolute = path;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "/test";
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is,
                       IODebugContext*) override {
    const Lock lock(state_->mutex);
    *is = !state_->names.contains(path);
    return IOStatus::OK();
  }

 private:
  template <typename Opened, typename File>
  IOStatus open(const std::string& name, std::unique_ptr<File>* file) {
    const Lock lock(state_->mutex);
    const IOStatus status = state_->operate(era_);
    if (!status.ok()) return status;
    const auto found = state_->names.find(name);
    if (found == state_->names.end()) return IOStatus::PathNotFound(name);
    *file = std::make_unique<Opened>(Handle{state_, found->second, era_});
    return IOStatus::OK();
  }

  const State state_;
  const std::uint64_t era_;
};

// Skips the second that RocksDB sleeps after each failed flush.
class Sleepless final : public rocksdb::SystemClockWrapper {
 public:
  using SystemClockWrapper::SystemClockWrapper;
  const char* Name() const override { return "Sleepless"; }
  void SleepForMicroseconds(int) override {}
};

class Env final : public rocksdb::EnvWrapper {
 public:
  Env(State state, std::uint64_t era)
      : EnvWrapper(rocksdb::NewCompositeEnv(std::make_shared<FileSystem>(std::move(state), era))) {
    system_clock_ = std::make_shared<Sleepless>(rocksdb::SystemClock::Default());
  }
};

}  // namespace

ForgetfulDisk::ForgetfulDisk() : state_(std::make_shared<State>()) {
  envs_.push_back(std::make_unique<Env>(state_, 0));
}

ForgetfulDisk::~ForgetfulDisk() = default;

void ForgetfulDisk::fail_after(std::uint64_t count) {
  const Lock lock(state_->mutex);
  state_->fails_at = state_->operations + count;
}

void ForgetfulDisk::lose_power(std::mt19937_64& rng) {
  const Lock lock(state_->mutex);
  ++state_->era;
  envs_.push_back(std::make_unique<Env>(state_, state_->era));
  state_->fails_at.reset();
  state_->apply(rng() % (state_->journal.size() + 1));
  for (auto& [name, inode] : state_->synced_names) {
    std::string left = inode->synced;
    const std::string& now = inode->bytes;
    // Keeps any sectors written since the last sync; the file ends after one of them.
    const std::size_t grown = now.size() - std::min(now.size(), left.size());
    const std::size_t end = left.size() + (grown == 0 ? 0 : rng() % (grown + 1));
    const std::size_t first = left.size();
    left.resize(std::max(first, end), '\0');
    for (std::size_t at = first; at < end; at += kSectorBytes) {
      if (rng() % 4 == 0) continue;
      std::memcpy(left.data() + at, now.data() + at, std::min(kSectorBytes, end - at));
    }
    inode = std::make_shared<Inode>(Inode{left, left});
  }
  state_->names = state_->synced_names;
}

}  // namespace precis::testing
