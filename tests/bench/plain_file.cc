#include "tests/bench/plain_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace precis::bench {
namespace {

Status failed(const char* what) {
  return Status::unavailable(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

PlainFile::PlainFile(std::string path) : path_(std::move(path)) {}
PlainFile::~PlainFile() { remove(); }

void PlainFile::remove() {
  if (appending_ >= 0) ::close(std::exchange(appending_, -1));
  ::unlink(path_.c_str());
}

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

Status PlainFile::append(Bytes bytes, bool sync) {
  if (appending_ < 0) {
    appending_ = ::open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (appending_ < 0) return failed("opening the plain file");
  }
  if (::write(appending_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return failed("writing the plain file");
  }
  return sync && ::fdatasync(appending_) != 0 ? failed("syncing the plain file") : Status();
}

Status PlainFile::read_direct(std::span<const MutableBytes> into, std::size_t begin,
                              std::size_t size) const {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return failed("opening the plain file around the cache");
  std::atomic<std::size_t> next{0};
  std::vector<Status> statuses(into.size());
  const auto read = [&](std::size_t reader) {
    const MutableBytes place = into[reader];
    for (std::size_t at; (at = next.fetch_add(place.size())) < size;) {
      const std::size_t end = std::min(at + place.size(), size);
      ssize_t done = 1;
      for (; at < end && done > 0; at += static_cast<std::size_t>(done)) {
        done = ::pread(fd, place.data(), end - at, static_cast<off_t>(begin + at));
        if (done < 0) statuses[reader] = failed("reading the plain file");
      }
      if (done <= 0) return;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < into.size(); ++i) others.emplace_back(read, i);
    read(0);
  }
  ::close(fd);
  for (Status& status : statuses) PRECIS_TRY(std::move(status));
  return {};
}

}  // namespace precis::bench
