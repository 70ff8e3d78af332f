#include "tests/bench/plain_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace precis::bench {
namespace {

Status failed(const char* what) {
  return Status::unavailable(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

PlainFile::PlainFile(std::string path) : path_(std::move(path)) {}
PlainFile::~PlainFile() { remove(); }
void PlainFile::remove() { ::unlink(path_.c_str()); }

Status PlainFile::write(ColdPool& pool, std::size_t groups, std::size_t pieces,
                        std::size_t piece_bytes, bool sync) {
  const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return failed("creating the plain file");
  Status status;
  for (std::size_t g = 0; g < groups && status.ok(); ++g) {
    for (std::size_t p = 0; p < pieces && status.ok(); ++p) {
      const MutableBytes piece = pool.next(piece_bytes);
      const ssize_t done = ::write(fd, piece.data(), piece.size());
      if (done != static_cast<ssize_t>(piece.size())) status = failed("writing the plain file");
      (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    if (sync && status.ok() && ::fdatasync(fd) != 0) status = failed("syncing the plain file");
  }
  ::close(fd);
  return status;
}

Status PlainFile::read_direct(MutableBytes into) const {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return failed("opening the plain file around the cache");
  ssize_t done;
  while ((done = ::read(fd, into.data(), into.size())) > 0) {
  }
  ::close(fd);
  return done == 0 ? Status() : failed("reading the plain file");
}

}  // namespace precis::bench
