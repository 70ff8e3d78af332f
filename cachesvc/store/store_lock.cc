#include "cachesvc/store/store_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

namespace precis {
namespace {

// The error for something that could not be created or opened in `dir`.
Status failed(int error, const std::string& dir, const std::string& what) {
  const std::string why = what + ": " + std::strerror(error);
  if (error == EACCES || error == EPERM || error == EROFS) return not_ours(dir, why);
  if (error == ENOSPC || error == EDQUOT) return Status::out_of_space(why);
  return Status::unavailable(why);
}

// The first part of the path that exists and is no directory; empty if there is none.
std::string no_directory_in(const std::filesystem::path& path) {
  std::filesystem::path part;
  for (const std::filesystem::path& name : path) {
    part /= name;
    std::error_code unknown;
    if (!std::filesystem::is_directory(part, unknown) && !unknown) return part.string();
  }
  return {};
}

// The descriptors of this process's locks. A forked child has a copy of each, and a flock() lock
// lasts until its last copy is closed.
struct HeldLocks {
  std::mutex mutex;
  std::set<int> files;

  // Never destroyed, because a process may fork at any time until it ends.
  static HeldLocks& all() {
    static HeldLocks& held = *new HeldLocks;
    static std::once_flag once;
    std::call_once(once, [] { ::pthread_atfork(before_fork, in_parent, in_child); });
    return held;
  }
  static void before_fork() { all().mutex.lock(); }
  static void in_parent() { all().mutex.unlock(); }
  // Replaces each lock's descriptor by one without a lock. The number stays in use: its owner in
  // the child closes it.
  static void in_child() {
    if (const int other = ::eventfd(0, EFD_CLOEXEC); other >= 0) {
      for (const int file : all().files) (void)::dup3(other, file, O_CLOEXEC);
      ::close(other);
    }
    all().mutex.unlock();
  }
};

}  // namespace

StoreLock::StoreLock(Descriptor file) : file_(std::move(file)) {
  HeldLocks& held = HeldLocks::all();
  const std::lock_guard lock(held.mutex);
  held.files.insert(file_.get());
}

StoreLock::~StoreLock() {
  if (!file_) return;
  HeldLocks& held = HeldLocks::all();
  const std::lock_guard lock(held.mutex);
  held.files.erase(file_.get());
  const Descriptor closed = std::move(file_);
}

Status not_ours(const std::string& dir, const std::string& why) {
  return Status::denied(
      "data directory " + dir + " can't be written to (" + why +
      "): run precisd as the owner of the directory, or choose another directory");
}

Status not_listed(int error, const std::string& dir) {
  return failed(error, dir, "listing " + dir);
}

Status make_directory(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error) return {};
  if (const std::string part = no_directory_in(dir); !part.empty()) {
    return Status::unavailable("data directory " + dir + " can't be created: " + part +
                               " is not a directory; move it away, or choose another directory");
  }
  return failed(error.value(), dir, "creating data directory " + dir);
}

Result<StoreLock> lock_store(const std::string& dir) {
  const std::string path = dir + "/store.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return failed(errno, dir, path);
  StoreLock lock(std::move(file));  // registered first: another thread may fork before flock()
  // The lock belongs to the open file, not to the process, so a second open in this process fails
  // too.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) {
    return Status::unavailable("data directory " + dir +
                               " is in use: another process has it open, or this one has it open "
                               "already; close it there, or choose another directory");
  }
  return Status::unavailable("locking " + path + ": " + std::strerror(errno));
}

}  // namespace precis
