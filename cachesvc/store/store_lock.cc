#include "cachesvc/store/store_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

namespace precis {

Result<Descriptor> lock_store(const std::string& dir) {
  const std::string path = dir + "/store.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    const int error = errno;
    const std::string why = path + ": " + std::strerror(error);
    if (error == EACCES || error == EPERM || error == EROFS) {
      return Status::denied("data directory " + dir + " can't be written to (" + why +
                            "): run as who owns it, or choose another directory");
    }
    if (error == ENOSPC || error == EDQUOT) return Status::out_of_space(why);
    return Status::unavailable(why);
  }
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
