#include "tests/unit/store/faulty_disk.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

namespace precis::testing {
namespace {

using Full = std::shared_ptr<std::atomic<bool>>;
using File = std::unique_ptr<rocksdb::FSWritableFile>;

class FaultyFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyFile(File file, Full full)
      : FSWritableFileOwnerWrapper(std::move(file)), full_(std::move(full)) {}
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    if (*full_) return rocksdb::IOStatus::NoSpace("the test's disk is full");
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo&,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }

 private:
  const Full full_;
};

class FaultyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultyFileSystem(Full full)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), full_(std::move(full)) {}
  const char* Name() const override { return "FaultyFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    File* file, rocksdb::IODebugContext* debug) override {
    const auto status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyFile>(std::move(*file), full_);
    return status;
  }

 private:
  const Full full_;
};

}  // namespace

FaultyDisk::FaultyDisk()
    : full_(std::make_shared<std::atomic<bool>>(false)),
      env_(rocksdb::NewCompositeEnv(std::make_shared<FaultyFileSystem>(full_))) {}

FaultyDisk::~FaultyDisk() = default;

}  // namespace precis::testing
