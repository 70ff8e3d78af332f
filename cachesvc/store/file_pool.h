// Files of a folder that are opened when they are used, and closed again when too many others are.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/store/files.h"

namespace precis {

// Thread-safe. It outlives its files.
class FilePool {
 public:
  // One file. Its end closes it.
  class Handle;

  // At most `open_max` files are open at a time, beside those in use and those that are held.
  FilePool(std::unique_ptr<Folder> folder, std::size_t open_max)
      : folder_(std::move(folder)), open_max_(open_max) {}

  Folder& folder() { return *folder_; }
  // A file that exists. It is opened when it is first used.
  std::shared_ptr<Handle> known(const std::string& name);
  // As Folder::create().
  Result<std::shared_ptr<Handle>> create(const std::string& name);

 private:
  // With mutex_ held: the files to close, outside of the lock.
  std::list<std::shared_ptr<File>> evict();

  const std::unique_ptr<Folder> folder_;
  const std::size_t open_max_;
  std::mutex mutex_;
  std::list<Handle*> open_;  // guarded by mutex_; the one used last is the first
};

class FilePool::Handle {
 public:
  Handle(FilePool& pool, std::string name) : pool_(pool), name_(std::move(name)) {}
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // [blocking] The file, which stays open as long as the caller has it. As Folder::open().
  Result<std::shared_ptr<File>> use();
  // A held file is not closed to open others: it has unsynced bytes, or its name is gone.
  void hold(bool held);

 private:
  friend class FilePool;
  void opened(std::shared_ptr<File> file);

  FilePool& pool_;
  const std::string name_;
  // Guarded by the pool's mutex.
  std::shared_ptr<File> file_;          // null while it is closed
  std::list<Handle*>::iterator place_;  // in open_, while it is open
  bool held_ = false;
};

}  // namespace precis
