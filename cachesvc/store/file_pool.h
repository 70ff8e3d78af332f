// Files of a folder, opened on use and closed when too many others are open.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/store/files.h"

namespace precis {

// Thread-safe. The pool outlives its files.
class FilePool {
 public:
  // One file. Its destruction closes it.
  class Handle;

  // At most `open_max` files are open, not counting files in use and held files.
  FilePool(std::unique_ptr<Folder> folder, std::size_t open_max)
      : folder_(std::move(folder)), open_max_(open_max) {}

  Folder& folder() { return *folder_; }
  // A file that exists. Opened on first use.
  std::shared_ptr<Handle> known(const std::string& name);
  // Errors as in Folder::create().
  Result<std::shared_ptr<Handle>> create(const std::string& name);

 private:
  // Callers hold mutex_. Returns the files to close after the lock is released.
  std::list<std::shared_ptr<File>> evict();

  const std::unique_ptr<Folder> folder_;
  const std::size_t open_max_;
  std::mutex mutex_;
  std::list<Handle*> open_;  // guarded by mutex_; most recently used first
};

class FilePool::Handle {
 public:
  Handle(FilePool& pool, std::string name) : pool_(pool), name_(std::move(name)) {}
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // [blocking] The file, which stays open as long as the caller holds it. Errors as in
  // Folder::open().
  Result<std::shared_ptr<File>> use();
  // A held file stays open even if the pool is full. For files with unsynced bytes, and files whose
  // name is deleted.
  void hold(bool held);

 private:
  friend class FilePool;
  void opened(std::shared_ptr<File> file);

  FilePool& pool_;
  const std::string name_;
  // Guarded by the pool's mutex.
  std::shared_ptr<File> file_;          // null if closed
  std::list<Handle*>::iterator place_;  // in open_, if open
  bool held_ = false;
};

}  // namespace precis
