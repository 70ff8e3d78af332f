// Files of the machine. Written through its cache, whose pages are handed to the disk at once, so
// that a sync finds little left to do; read around it where that can be, for the service keeps what
// is hot itself and a second copy would only drive out others'.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cachesvc/store/files.h"

namespace precis {
namespace {

Status from_errno(int error, const std::string& what) {
  const std::string message = what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return Status::out_of_space(message);
  if (error == ENOENT) return Status::not_found(message);
  if (error == EIO || error == EBADMSG || error == ENODATA) return Status::corruption(message);
  return Status::unavailable(message);
}

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

bool on_a_block(std::uintptr_t at) { return at % kFileBlockBytes == 0; }

class PosixFile final : public File {
 public:
  // `around`: opened for reading around the cache; none where the file system has no such thing.
  PosixFile(std::string path, Descriptor file, Descriptor around)
      : path_(std::move(path)), file_(std::move(file)), around_(std::move(around)) {}

  Status write_at(std::uint64_t offset, Bytes bytes) override {
    const std::uint64_t first = offset, size = bytes.size();
    while (!bytes.empty()) {
      const ssize_t done =
          ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return from_errno(errno, "writing " + path_);
      if (done == 0) return Status::unavailable("writing " + path_ + ": nothing was taken");
      offset += static_cast<std::uint64_t>(done);
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    // Begins the writing and does not wait for it; sync() does, and tells of errors.
    (void)::sync_file_range(file_.get(), static_cast<off_t>(first), static_cast<off_t>(size),
                            SYNC_FILE_RANGE_WRITE);
    return {};
  }

  Status read_at(std::uint64_t offset, MutableBytes into) override {
    const bool aligned =
        on_a_block(offset) && on_a_block(reinterpret_cast<std::uintptr_t>(into.data()));
    if (around_ && aligned && !into.empty()) return read_around(offset, into);
    return read_through(offset, into);
  }

  Status sync() override {
    return ::fdatasync(file_.get()) == 0 ? Status() : from_errno(errno, "syncing " + path_);
  }

  Result<std::uint64_t> size() override {
    struct stat told {};
    if (::fstat(file_.get(), &told) != 0) return from_errno(errno, "looking at " + path_);
    return static_cast<std::uint64_t>(told.st_size);
  }

 private:
  Status read_through(std::uint64_t offset, MutableBytes into) {
    while (!into.empty()) {
      const ssize_t done =
          ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return from_errno(errno, "reading " + path_);
      if (done == 0) return ends_at(offset);
      offset += static_cast<std::uint64_t>(done);
      into = into.subspan(static_cast<std::size_t>(done));
    }
    return {};
  }

  // Whole blocks into `into`, and the last one, of which only a part is wanted, beside it.
  Status read_around(std::uint64_t offset, MutableBytes into) {
    alignas(kFileBlockBytes) std::byte last[kFileBlockBytes];
    const std::size_t rest = into.size() % kFileBlockBytes, whole = into.size() - rest;
    iovec pieces[] = {{into.data(), whole}, {last, rest == 0 ? 0 : kFileBlockBytes}};
    ssize_t done;
    do {
      done = ::preadv(around_.get(), pieces + (whole == 0 ? 1 : 0), whole == 0 || rest == 0 ? 1 : 2,
                      static_cast<off_t>(offset));
    } while (done < 0 && errno == EINTR);
    if (done == -1 && errno == EINVAL)
      return read_through(offset, into);  // larger blocks than ours
    if (done < 0) return from_errno(errno, "reading " + path_);
    const auto got = static_cast<std::size_t>(done);
    // One call reads at most 2 GiB; it may also be cut short for reasons of its own.
    if (got < whole) return read_through(offset + got, into.subspan(got));
    if (got - whole < rest) return ends_at(offset + got);
    std::memcpy(into.data() + whole, last, rest);
    return {};
  }

  Status ends_at(std::uint64_t offset) const {
    return Status::corruption("reading " + path_ + ": it ends at byte " + std::to_string(offset));
  }

  const std::string path_;
  const Descriptor file_, around_;
};

class PosixFolder final : public Folder {
 public:
  PosixFolder(std::string path, Descriptor folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}

  Result<std::unique_ptr<File>> create(const std::string& name) override {
    return open_file(name, O_CREAT | O_EXCL);
  }
  Result<std::unique_ptr<File>> open(const std::string& name) override {
    return open_file(name, 0);
  }

  Status remove(const std::string& name) override {
    if (::unlinkat(folder_.get(), name.c_str(), 0) == 0) return {};
    return from_errno(errno, "removing " + path_ + "/" + name);
  }

  Result<std::vector<std::string>> names() override {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator file(path_, error), end; !error && file != end;
         file.increment(error)) {
      names.push_back(file->path().filename().string());
    }
    if (error) return from_errno(error.value(), "listing " + path_);
    return names;
  }

  Status sync() override {
    return ::fsync(folder_.get()) == 0 ? Status() : from_errno(errno, "syncing " + path_);
  }

 private:
  Result<std::unique_ptr<File>> open_file(const std::string& name, int how) {
    const std::string path = path_ + "/" + name;
    Descriptor file(::openat(folder_.get(), name.c_str(), O_RDWR | O_CLOEXEC | how, 0644));
    if (!file) return from_errno(errno, "opening " + path);
    Descriptor around(::openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    return std::unique_ptr<File>(
        std::make_unique<PosixFile>(path, std::move(file), std::move(around)));
  }

  const std::string path_;
  const Descriptor folder_;
};

}  // namespace

Result<std::unique_ptr<Folder>> open_posix_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Status::unavailable("folder " + path + ": " + error.message());
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return from_errno(errno, "opening folder " + path);
  // Its own name, too, is to survive a crash of the machine.
  const Descriptor above(::openat(folder.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above || ::fsync(above.get()) != 0) return from_errno(errno, "syncing what holds " + path);
  return std::unique_ptr<Folder>(std::make_unique<PosixFolder>(path, std::move(folder)));
}

}  // namespace precis
