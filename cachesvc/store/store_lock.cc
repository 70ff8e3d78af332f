#include "cachesvc/store/store_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace precis {
namespace {

// Of what was to be made or opened in `dir`.
Status failed(int error, const std::string& dir, const std::string& what) {
  const std::string why = what + ": " + std::strerror(error);
  if (error == EACCES || error == EPERM || error == EROFS) return not_ours(dir, why);
  if (error == ENOSPC || error == EDQUOT) return Status::out_of_space(why);
  return Status::unavailable(why);
}

// The first part of the path that is there and no directory; empty if there is none.
std::string no_directory_in(const std::filesystem::path& path) {
  std::filesystem::path part;
  for (const std::filesystem::path& name : path) {
    part /= name;
    std::error_code unknown;
    if (!std::filesystem::is_directory(part, unknown) && !unknown) return part.string();
  }
  return {};
}

}  // namespace

Status not_ours(const std::string& dir, const std::string& why) {
  return Status::denied("data directory " + dir + " can't be written to (" + why +
                        "): run as who owns it, or choose another directory");
}

Status not_listed(int error, const std::string& dir) {
  return failed(error, dir, "listing " + dir);
}

Status make_directory(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error) return {};
  if (const std::string part = no_directory_in(dir); !part.empty()) {
    return Status::unavailable("data directory " + dir + " can't be made: " + part +
                               " is no directory; move it away, or choose another directory");
  }
  return failed(error.value(), dir, "making data directory " + dir);
}

Result<Descriptor> lock_store(const std::string& dir) {
  const std::string path = dir + "/store.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return failed(errno, dir, path);
  // Of the open file, not of the process: who opens it again is refused as well.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno == EWOULDBLOCK) {
    return Status::unavailable("data directory " + dir +
                               " is in use: it is open in another process, or once more in this "
                               "one; close that, or choose another directory");
  }
  return Status::unavailable("locking " + path + ": " + std::strerror(errno));
}

}  // namespace precis
