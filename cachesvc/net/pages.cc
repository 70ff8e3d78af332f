#include "cachesvc/net/pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "cachesvc/base/descriptor.h"

// These constants may be newer than the system's headers.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace precis {
namespace {

// No machine maps more. Below this limit, rounding up cannot overflow.
constexpr std::size_t kMappableBytesMax = std::size_t{1} << 56;

std::size_t unit_of(std::size_t n) {
  return n < Pages::kUnitBytes ? Pages::kSmallPageBytes : Pages::kUnitBytes;
}

std::size_t round_up(std::size_t n) {
  const std::size_t unit = unit_of(n);
  return std::max((n + unit - 1) / unit * unit, unit);
}

std::string text(int error) { return std::generic_category().message(error); }

Status no_memory(std::size_t size_bytes, int error) {
  return Status::out_of_space("no memory for a buffer of " + std::to_string(size_bytes) +
                              " B: " + text(error));
}

// Maps `size_bytes` at a huge-page boundary: of a file, or private memory if `descriptor` is -1. On
// failure, returns empty bytes and sets errno.
MutableBytes map(std::size_t size_bytes, int descriptor, int access = PROT_READ | PROT_WRITE) {
  // Reserves extra address space and trims it, so that huge pages fit from the first byte on.
  const std::size_t spare = size_bytes + Pages::kUnitBytes;
  void* const reserved =
      ::mmap(nullptr, spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return {};
  auto* const first = static_cast<std::byte*>(reserved);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % Pages::kUnitBytes;
  std::byte* const begin = first + before;
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const mapped = ::mmap(begin, size_bytes, access, kind | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(first, spare);
    errno = error;
    return {};
  }
  if (before > 0) ::munmap(first, before);
  std::byte* const end = begin + size_bytes;
  if (first + spare > end) ::munmap(end, static_cast<std::size_t>(first + spare - end));
  ::madvise(begin, size_bytes, MADV_HUGEPAGE);  // a hint: a refusal only costs speed
  return {begin, size_bytes};
}

int new_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int file = ::memfd_create("precis", kFlags | MFD_NOEXEC_SEAL);
  return file < 0 && errno == EINVAL ? ::memfd_create("precis", kFlags) : file;
}

}  // namespace

Result<std::unique_ptr<Pages>> Pages::make_private(std::size_t size_bytes) {
  if (size_bytes > kMappableBytesMax) return no_memory(size_bytes, ENOMEM);
  const MutableBytes bytes = map(round_up(size_bytes), -1);
  if (bytes.empty()) return no_memory(size_bytes, errno);
  return std::unique_ptr<Pages>(new Pages(bytes, -1));
}

Result<std::unique_ptr<Pages>> Pages::make_shared(std::size_t size_bytes) {
  if (size_bytes > kMappableBytesMax) return no_memory(size_bytes, ENOMEM);
  const std::size_t size = round_up(size_bytes);
  Descriptor file(new_file());
  if (!file) return Status::unsupported("no memory file: " + text(errno));
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return no_memory(size_bytes, errno);
  const MutableBytes bytes = map(size, file.get());
  if (bytes.empty()) return no_memory(size_bytes, errno);
  std::unique_ptr<Pages> pages(new Pages(bytes, file.release()));
  if (::madvise(bytes.data(), size, MADV_POPULATE_WRITE) != 0) {
    // For kernels without this call: allocate small pages and then touch them, because an allocated
    // but untouched page counts as a hole.
    if (errno != EINVAL || ::fallocate(pages->descriptor_, 0, 0, static_cast<off_t>(size)) != 0) {
      return no_memory(size_bytes, errno);
    }
    for (std::size_t at = 0; at < size; at += kSmallPageBytes) {
      *static_cast<volatile std::byte*>(&bytes[at]) = std::byte{0};
    }
  }
  if (::fcntl(pages->descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Status::unsupported("no sealed memory file: " + text(errno));
  }
  return pages;
}

Result<std::unique_ptr<Pages>> Pages::adopt(Descriptor file, std::size_t size_bytes) {
  const int descriptor = file.get();
  const auto refuse = [](const std::string& why) {
    return Status::invalid("not memory to share: " + why);
  };
  // Checked first, because it does not call the file system: the peer may pass a file of a file
  // system that it runs itself and that never answers.
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return refuse("not a memory file");
  if ((seals & F_SEAL_SHRINK) == 0) return refuse("it may shrink");
  struct stat about {};
  struct statfs system {};
  if (::fstat(descriptor, &about) != 0 || ::fstatfs(descriptor, &system) != 0) {
    return refuse(text(errno));
  }
  // Refuses reserved huge pages (hugetlbfs), because other rules say when they disappear.
  if (!S_ISREG(about.st_mode) || system.f_type != TMPFS_MAGIC) return refuse("not a memory file");
  if (size_bytes == 0 || size_bytes % unit_of(size_bytes) != 0 ||
      std::cmp_not_equal(about.st_size, size_bytes)) {
    return refuse("it has " + std::to_string(about.st_size) + " B, not " +
                  std::to_string(size_bytes));
  }
  // The server of an earlier link may have sealed the file.
  const bool writable = (seals & F_SEAL_FUTURE_WRITE) == 0;
  const MutableBytes bytes =
      map(size_bytes, descriptor, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  if (bytes.empty()) return refuse(text(errno));
  std::unique_ptr<Pages> pages(new Pages(bytes, -1, writable));
  // The order matters: after the seal no page can disappear, so pages that are present then stay.
  // The check looks for a hole instead of counting blocks, because stat also counts blocks past the
  // end.
  if (::fcntl(descriptor, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
    return refuse("it cannot be sealed against holes: " + text(errno));
  }
  if (std::cmp_not_equal(::lseek(descriptor, 0, SEEK_HOLE), size_bytes)) {
    return refuse("some of its pages are missing");
  }
  return pages;
}

Pages::~Pages() {
  ::munmap(bytes_.data(), bytes_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace precis
