#include "cachesvc/store/file_pool.h"

#include <utility>

namespace precis {

std::shared_ptr<FilePool::Handle> FilePool::known(const std::string& name) {
  return std::make_shared<Handle>(*this, name);
}

Result<std::shared_ptr<FilePool::Handle>> FilePool::create(const std::string& name) {
  PRECIS_ASSIGN(std::unique_ptr<File> file, folder_->create(name));
  auto handle = std::make_shared<Handle>(*this, name);
  handle->opened(std::move(file));
  return handle;
}

std::list<std::shared_ptr<File>> FilePool::evict() {
  std::list<std::shared_ptr<File>> closed;
  for (auto place = open_.end(); open_.size() > open_max_ && place != open_.begin();) {
    --place;
    Handle& handle = **place;
    if (handle.held_) continue;
    closed.push_back(std::exchange(handle.file_, nullptr));
    place = open_.erase(place);
  }
  return closed;
}

FilePool::Handle::~Handle() {
  const std::lock_guard lock(pool_.mutex_);
  if (file_) pool_.open_.erase(place_);
}

Result<std::shared_ptr<File>> FilePool::Handle::use() {
  {
    const std::lock_guard lock(pool_.mutex_);
    if (file_) {
      pool_.open_.splice(pool_.open_.begin(), pool_.open_, place_);
      return file_;
    }
  }
  PRECIS_ASSIGN(std::shared_ptr<File> file, pool_.folder_->open(name_));
  opened(file);
  return file;
}

void FilePool::Handle::opened(std::shared_ptr<File> file) {
  std::list<std::shared_ptr<File>> closed;
  const std::lock_guard lock(pool_.mutex_);
  if (file_) return;  // another thread opened it meanwhile
  file_ = std::move(file);
  place_ = pool_.open_.insert(pool_.open_.begin(), this);
  closed = pool_.evict();
}

void FilePool::Handle::hold(bool held) {
  const std::lock_guard lock(pool_.mutex_);
  held_ = held;
}

}  // namespace precis
