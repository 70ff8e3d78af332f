#include "cachesvc/store/deleted_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace precis {

Status DeletedFiles::check() {
  {
    const std::lock_guard lock(mutex_);
    PRECIS_TRY(found_);
  }
  struct stat told = {};
  if (::fstat(lock_, &told) != 0 || told.st_nlink > 0) return {};
  return found("the data directory " + dir_);
}

Status DeletedFiles::check_directory() {
  PRECIS_TRY(check());
  struct stat opened = {}, named = {};
  if (::fstat(lock_, &opened) != 0) return {};
  const std::string name = dir_ + "/store.lock";
  if (::stat(name.c_str(), &named) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? found(name) : Status();
  }
  const bool same = opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  return same ? Status() : found(name);
}

std::optional<std::string> DeletedFiles::missing_twice(
    const std::function<std::vector<std::string>()>& look) {
  const std::vector<std::string> first = look();
  if (first.empty()) return std::nullopt;
  const std::vector<std::string> second = look();
  const auto both = std::ranges::find_first_of(first, second);
  return both == first.end() ? std::nullopt : std::optional(*both);
}

Status DeletedFiles::found(const std::string& what) {
  const std::lock_guard lock(mutex_);
  found_ = Status::unavailable(
      what +
      " was deleted while the service ran: restore the data directory and restart the service");
  return found_;
}

}  // namespace precis
