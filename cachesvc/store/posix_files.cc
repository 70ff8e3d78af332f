// Files of the machine, read and written around the page cache (O_DIRECT) if possible: the service
// itself caches hot layers, and a second copy would take processor time and evict other programs'
// pages.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/store/direct_blocks.h"
#include "cachesvc/store/files.h"
#include "cachesvc/store/store_lock.h"

namespace precis {
namespace {

Status from_errno(int error, const std::string& what) {
  const std::string message = what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return Status::out_of_space(message);
  if (error == ENOENT) return Status::not_found(message);
  if (error == EIO || error == EBADMSG || error == ENODATA) return Status::corruption(message);
  return Status::unavailable(message);
}

// The error for an open file or folder that no longer has a name.
Status deleted(const std::string& path) {
  return Status::unavailable(path +
                             " was deleted while the service ran, and its content with it: restore "
                             "the data directory and restart the service");
}

Status check_linked(int fd, const std::string& path) {
  struct stat told {};
  if (::fstat(fd, &told) != 0) return from_errno(errno, "looking at " + path);
  return told.st_nlink == 0 ? deleted(path) : Status();
}

class PosixFile final : public File {
 public:
  // `around`: opened for reading and writing around the page cache.
  PosixFile(std::string path, Descriptor file, bool around)
      : path_(std::move(path)), file_(std::move(file)), around_(around) {}

  Status write_at(std::uint64_t offset, std::span<const Bytes> values) override {
    static const std::byte kNothing{};
    PRECIS_TRY(check_linked(file_.get(), path_));
    DirectBlocks blocks;
    for (Bytes value : values) {
      if (value.empty()) value = {&kNothing, 1};  // takes one block
      for (;;) {
        value = value.subspan(blocks.add(value));
        if (value.empty()) break;
        PRECIS_TRY(write(offset, blocks));  // blocks is full
      }
    }
    return write(offset, blocks);
  }

  Status read_at(std::uint64_t offset, MutableBytes into) override {
    if (!around_ || into.empty()) return read_through(offset, into);
    const bool aligned = on_a_block(reinterpret_cast<std::uintptr_t>(into.data()));
    if (on_a_block(offset) && aligned) return read_around(offset, into);
    return read_beside(offset, into);
  }

  Status sync() override {
    PRECIS_TRY(check_linked(file_.get(), path_));
    return ::fdatasync(file_.get()) == 0 ? Status() : from_errno(errno, "syncing " + path_);
  }

  Result<std::uint64_t> size() override {
    struct stat told {};
    if (::fstat(file_.get(), &told) != 0) return from_errno(errno, "looking at " + path_);
    return static_cast<std::uint64_t>(told.st_size);
  }

  Result<std::uint64_t> taken() override {
    struct stat told {};
    if (::fstat(file_.get(), &told) != 0) return from_errno(errno, "looking at " + path_);
    return static_cast<std::uint64_t>(told.st_blocks) * 512;  // its unit, whatever st_blksize is
  }

  Status punch(std::uint64_t offset, std::uint64_t size) override {
    constexpr int kHow = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(file_.get(), kHow, static_cast<off_t>(offset), static_cast<off_t>(size)) == 0) {
      return {};
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      return Status::unsupported("the file system of " + path_ + " can't punch holes");
    }
    return from_errno(errno, "punching a hole into " + path_);
  }

  Status take_room(std::uint64_t size) override {
    if (::fallocate(file_.get(), 0, 0, static_cast<off_t>(size)) == 0) return {};
    if (errno != EOPNOTSUPP && errno != ENOSYS) return from_errno(errno, "reserving " + path_);
    // Writes noise: for zeros, a file system may allocate no space.
    const FileBlocks noise(kNoiseBytes);
    std::uint64_t state = 0x9e3779b97f4a7c15;
    for (std::byte& byte : noise.bytes()) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      byte = static_cast<std::byte>(state);
    }
    for (std::uint64_t offset = 0; offset < size; offset += kNoiseBytes) {
      const Bytes value = noise.bytes().first(std::min<std::uint64_t>(kNoiseBytes, size - offset));
      PRECIS_TRY(write_at(offset, {&value, 1}));
    }
    return sync();
  }

 private:
  static constexpr std::size_t kNoiseBytes = std::size_t{1} << 20;

  // The disk's blocks are larger than kFileBlockBytes: use the page cache from now on.
  bool give_up_around() {
    const int flags = ::fcntl(file_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT) != 0) return false;
    around_ = false;
    return true;
  }

  // Writes all of `blocks` at `offset`, and advances `offset`.
  Status write(std::uint64_t& offset, DirectBlocks& blocks) {
    std::vector<iovec>& pieces = blocks.pieces();
    for (std::size_t first = 0; first < pieces.size();) {
      const bool around = around_;
      const ssize_t done =
          ::pwritev(file_.get(), &pieces[first], static_cast<int>(pieces.size() - first),
                    static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && errno == EINVAL && around && give_up_around()) continue;
      if (done < 0) return from_errno(errno, "writing " + path_);
      if (done == 0) return Status::unavailable("writing " + path_ + ": the system wrote nothing");
      offset += static_cast<std::uint64_t>(done);
      auto left = static_cast<std::size_t>(done);
      for (; first < pieces.size() && left >= pieces[first].iov_len; ++first) {
        left -= pieces[first].iov_len;
      }
      if (left == 0) continue;
      pieces[first].iov_base = static_cast<std::byte*>(pieces[first].iov_base) + left;
      pieces[first].iov_len -= left;
    }
    blocks.clear();
    return {};
  }

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

  // Reads whole blocks into `into`, and a last block that is needed only in part into a buffer.
  Status read_around(std::uint64_t offset, MutableBytes into) {
    alignas(kFileBlockBytes) std::byte last[kFileBlockBytes];
    const std::size_t rest = into.size() % kFileBlockBytes, whole = into.size() - rest;
    iovec pieces[] = {{into.data(), whole}, {last, rest == 0 ? 0 : kFileBlockBytes}};
    ssize_t done;
    do {
      done = ::preadv(file_.get(), pieces + (whole == 0 ? 1 : 0), whole == 0 || rest == 0 ? 1 : 2,
                      static_cast<off_t>(offset));
    } while (done < 0 && errno == EINTR);
    if (done == -1 && errno == EINVAL && give_up_around()) return read_through(offset, into);
    if (done < 0) return from_errno(errno, "reading " + path_);
    const auto got = static_cast<std::size_t>(done);
    // One call reads at most 2 GiB, and may return fewer bytes for other reasons.
    if (got < whole) {
      if (got == 0) return ends_at(offset);
      const std::size_t blocks = got / kFileBlockBytes * kFileBlockBytes;
      return read_beside(offset + blocks, into.subspan(blocks));
    }
    if (got - whole < rest) return ends_at(offset + got);
    std::memcpy(into.data() + whole, last, rest);
    return {};
  }

  // Reads through aligned memory, because `into` or `offset` is not aligned.
  Status read_beside(std::uint64_t offset, MutableBytes into) {
    const FileBlocks beside(std::min(kBesideBytes, whole_blocks(into.size()) + kFileBlockBytes));
    while (!into.empty()) {
      const std::uint64_t skip = offset % kFileBlockBytes;
      const MutableBytes blocks = beside.bytes().first(
          std::min<std::uint64_t>(beside.bytes().size(), whole_blocks(skip + into.size())));
      const ssize_t done =
          ::pread(file_.get(), blocks.data(), blocks.size(), static_cast<off_t>(offset - skip));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && errno == EINVAL && around_ && give_up_around()) continue;
      if (done < 0) return from_errno(errno, "reading " + path_);
      const auto got = static_cast<std::uint64_t>(done);
      if (got <= skip) return ends_at(offset - skip + got);
      const std::size_t size = std::min<std::uint64_t>(got - skip, into.size());
      std::memcpy(into.data(), blocks.data() + skip, size);
      offset += size;
      into = into.subspan(size);
    }
    return {};
  }

  Status ends_at(std::uint64_t offset) const {
    return Status::corruption("reading " + path_ + ": it ends at byte " + std::to_string(offset));
  }

  static constexpr std::size_t kBesideBytes = std::size_t{1} << 20;
  const std::string path_;
  const Descriptor file_;
  std::atomic<bool> around_;
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

  std::optional<std::uint64_t> stamp() override {
    struct stat told {};
    if (::fstat(folder_.get(), &told) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(told.st_ctim.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(told.st_ctim.tv_nsec);
  }

  Status sync() override {
    PRECIS_TRY(linked());
    return ::fsync(folder_.get()) == 0 ? Status() : from_errno(errno, "syncing " + path_);
  }

  Result<DiskRoom> room() override {
    struct statvfs told {};
    if (::fstatvfs(folder_.get(), &told) != 0) return from_errno(errno, "looking at " + path_);
    return DiskRoom{std::uint64_t{told.f_bavail} * told.f_frsize,
                    std::uint64_t{told.f_blocks} * told.f_frsize};
  }

  Status linked() override { return check_linked(folder_.get(), path_); }

 private:
  Result<std::unique_ptr<File>> open_file(const std::string& name, int how) {
    const std::string path = path_ + "/" + name;
    Descriptor file(::openat(folder_.get(), name.c_str(), O_RDWR | O_CLOEXEC | how, 0644));
    if (!file) return from_errno(errno, "opening " + path);
    // Fails if the file system does not support O_DIRECT.
    const int flags = ::fcntl(file.get(), F_GETFL);
    const bool around = flags >= 0 && ::fcntl(file.get(), F_SETFL, flags | O_DIRECT) == 0;
    return std::unique_ptr<File>(std::make_unique<PosixFile>(path, std::move(file), around));
  }

  const std::string path_;
  const Descriptor folder_;
};

}  // namespace

FileBlocks::FileBlocks(std::size_t size_bytes)
    : memory_(
          static_cast<std::byte*>(std::aligned_alloc(kFileBlockBytes, whole_blocks(size_bytes)))),
      size_bytes_(size_bytes) {
  if (!memory_) throw std::bad_alloc();
}

Result<std::unique_ptr<Folder>> open_posix_folder(const std::string& path) {
  PRECIS_TRY(make_directory(path));
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder && errno == EACCES) return not_ours(path, std::strerror(EACCES));
  if (!folder) return from_errno(errno, "opening folder " + path);
  // The folder's own name must survive a crash of the machine, too.
  const Descriptor above(::openat(folder.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above || ::fsync(above.get()) != 0)
    return from_errno(errno, "syncing the parent of " + path);
  return std::unique_ptr<Folder>(std::make_unique<PosixFolder>(path, std::move(folder)));
}

}  // namespace precis
