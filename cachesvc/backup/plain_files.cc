#include "cachesvc/backup/plain_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace precis {

Status system_error(const std::string& what) {
  const int error = errno;
  const std::string message = what + ": " + std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return Status::out_of_space(message);
  if (error == ENOENT) return Status::not_found(message);
  if (error == EACCES || error == EPERM || error == EROFS) return Status::denied(message);
  if (error == EIO) return Status::corruption(message);
  return Status::unavailable(message);
}

Result<Descriptor> create_plain(const std::string& path) {
  Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return system_error("creating " + path);
  return file;
}

Result<Descriptor> open_plain(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return system_error("opening " + path);
  return file;
}

Status check_fits_memory(std::uint64_t bytes, const std::string& path) {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  const std::uint64_t memory = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes <= memory / 2) return {};
  return Status::out_of_space(path + " has " + std::to_string(bytes) + " B, and this machine has " +
                              std::to_string(memory) + " B of memory");
}

Result<std::uint64_t> size_of(const Descriptor& file, const std::string& path) {
  struct stat told {};
  if (::fstat(file.get(), &told) != 0) return system_error("looking at " + path);
  if (!S_ISREG(told.st_mode)) return Status::corruption(path + " is not a file");
  return static_cast<std::uint64_t>(told.st_size);
}

Status write_all(const Descriptor& file, Bytes bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("writing " + path);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

Status read_exactly(const Descriptor& file, MutableBytes into, const std::string& path) {
  while (!into.empty()) {
    const ssize_t got = ::read(file.get(), into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("reading " + path);
    if (got == 0) return Status::corruption(path + " ends too early");
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status sync_plain(const Descriptor& file, const std::string& path) {
  return ::fsync(file.get()) == 0 ? Status() : system_error("syncing " + path);
}

Status sync_file_system(const Descriptor& opened, const std::string& path) {
  return ::syncfs(opened.get()) == 0 ? Status() : system_error("syncing " + path);
}

Status sync_folder(const std::string& dir) {
  PRECIS_ASSIGN(const Descriptor folder, open_plain(dir));
  return sync_plain(folder, dir);
}

Status rename_plain(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0 ? Status() : system_error("renaming " + from);
}

Result<std::vector<std::string>> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator file(dir, error), end; !error && file != end;
       file.increment(error)) {
    names.push_back(file->path().filename().string());
  }
  if (!error) return names;
  errno = error.value();
  return system_error("listing " + dir);
}

Result<std::uint64_t> free_bytes_of(const std::string& dir) {
  struct statvfs told {};
  if (::statvfs(dir.c_str(), &told) != 0) return system_error("looking at " + dir);
  return std::uint64_t{told.f_bavail} * told.f_frsize;
}

}  // namespace precis
