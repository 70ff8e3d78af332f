// Files of the machine. Written and read around its cache where that can be: the service keeps what
// is hot itself, and a second copy would cost the processor's time and drive out others'.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
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

bool on_a_block(std::uintptr_t at) { return at % kFileBlockBytes == 0; }

// Values as whole blocks on block boundaries, as writing around the cache wants them: from where
// they are, or copied where they are not so. Takes values until it is full, and is then taken from.
class Blocks {
 public:
  // The bytes of `value` that fitted.
  std::size_t add(Bytes value) {
    const std::size_t before = value.size();
    while (!value.empty() && pieces_.size() < kPiecesMax) {
      const std::size_t whole = value.size() / kFileBlockBytes * kFileBlockBytes;
      const bool as_it_is = on_a_block(reinterpret_cast<std::uintptr_t>(value.data())) && whole > 0;
      const Bytes piece = as_it_is ? value.first(whole) : copy(value);
      if (piece.empty()) break;
      pieces_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
      value = value.subspan(std::min(piece.size(), value.size()));
    }
    return before - value.size();
  }

  std::vector<iovec>& pieces() { return pieces_; }
  void clear() {
    pieces_.clear();
    copied_ = 0;
  }

 private:
  static constexpr std::size_t kPiecesMax = 512;  // of the 1024 that one call takes
  static constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

  // As much of `value` as fits, its last block filled with zeros; nothing if nothing does.
  Bytes copy(Bytes value) {
    if (copies_.bytes().empty()) copies_ = FileBlocks(kCopyBytes);
    const std::size_t size = std::min(value.size(), kCopyBytes - copied_);
    if (size == 0) return {};
    std::byte* const first = copies_.bytes().data() + copied_;
    const std::size_t blocks = whole_blocks(size);
    std::memcpy(first, value.data(), size);
    std::memset(first + size, 0, blocks - size);
    copied_ += blocks;
    return {first, blocks};
  }

  std::vector<iovec> pieces_;
  FileBlocks copies_;
  std::size_t copied_ = 0;
};

class PosixFile final : public File {
 public:
  // `around`: opened for going around the cache; none where the file system has no such thing.
  PosixFile(std::string path, Descriptor file, Descriptor around)
      : path_(std::move(path)), file_(std::move(file)), around_(std::move(around)) {}

  Status write_at(std::uint64_t offset, std::span<const Bytes> values) override {
    static const std::byte kNothing{};
    Blocks blocks;
    for (Bytes value : values) {
      if (value.empty()) value = {&kNothing, 1};  // for its block
      for (;;) {
        value = value.subspan(blocks.add(value));
        if (value.empty()) break;
        PRECIS_TRY(write(offset, blocks));  // it is full
      }
    }
    return write(offset, blocks);
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
  // Empties `blocks` to `offset`, which is then behind them.
  Status write(std::uint64_t& offset, Blocks& blocks) {
    std::vector<iovec>& pieces = blocks.pieces();
    int file = around_ ? around_.get() : file_.get();
    for (std::size_t first = 0; first < pieces.size();) {
      const ssize_t done = ::pwritev(file, &pieces[first], static_cast<int>(pieces.size() - first),
                                     static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && errno == EINVAL && file != file_.get()) {  // larger blocks than ours
        file = file_.get();
        continue;
      }
      if (done < 0) return from_errno(errno, "writing " + path_);
      if (done == 0) return Status::unavailable("writing " + path_ + ": nothing was taken");
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
    Descriptor around(::openat(folder_.get(), name.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
    return std::unique_ptr<File>(
        std::make_unique<PosixFile>(path, std::move(file), std::move(around)));
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
  if (!folder) return from_errno(errno, "opening folder " + path);
  // Its own name, too, is to survive a crash of the machine.
  const Descriptor above(::openat(folder.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!above || ::fsync(above.get()) != 0) return from_errno(errno, "syncing what holds " + path);
  return std::unique_ptr<Folder>(std::make_unique<PosixFolder>(path, std::move(folder)));
}

}  // namespace precis
