// Memory shared between processes, and what a peer may try with it (pages.h, shared_mover.h).
#include "cachesvc/net/pages.h"
#include "cachesvc/base/thread_executor.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "cachesvc/transport/shared_mover.h"

namespace precis {
namespace {

constexpr std::size_t kSize = Pages::kUnitBytes;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A memory file as a peer might make it.
int memory_file(std::size_t size, bool filled, int seals) {
  const int file = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(file >= 0);
  REQUIRE(::ftruncate(file, static_cast<off_t>(size)) == 0);
  if (filled) {
    const std::vector<std::byte> zeros(size);
    REQUIRE(::pwrite(file, zeros.data(), size, 0) == static_cast<ssize_t>(size));
  }
  if (seals != 0) REQUIRE(::fcntl(file, F_ADD_SEALS, seals) == 0);
  return file;
}

StatusCode adopted(int descriptor, std::size_t size = kSize) {
  return Pages::adopt(Descriptor(descriptor), size).status().code();
}

TEST_CASE("what one side writes to shared pages the other reads", "[transport]") {
  const auto mine = Pages::make_shared(3 * kSize - 5).value();
  REQUIRE(mine->bytes().size() == 3 * kSize);
  const auto theirs = Pages::adopt(Descriptor(::dup(mine->descriptor())), 3 * kSize).value();
  CHECK(theirs->bytes().data() != mine->bytes().data());
  CHECK(reinterpret_cast<std::uintptr_t>(mine->bytes().data()) % kSize == 0);
  CHECK(std::all_of(theirs->bytes().begin(), theirs->bytes().end(),
                    [](std::byte b) { return b == std::byte{0}; }));
  std::memset(theirs->bytes().data(), 7, 3 * kSize);
  CHECK(mine->bytes()[3 * kSize - 1] == std::byte{7});
  mine->bytes()[kSize] = std::byte{8};
  CHECK(theirs->bytes()[kSize] == std::byte{8});
}

TEST_CASE("no size that no machine has is mapped", "[transport]") {
  for (const std::size_t size : {std::size_t{1} << 62, SIZE_MAX - 5}) {
    CHECK(Pages::make_private(size).status().code() == StatusCode::kOutOfSpace);
    CHECK(Pages::make_shared(size).status().code() == StatusCode::kOutOfSpace);
  }
}

TEST_CASE("nothing but a whole memory file that cannot shrink is mapped", "[transport]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  CHECK(adopted(ends[0]) == StatusCode::kInvalidArgument);
  CHECK(adopted(ends[1]) == StatusCode::kInvalidArgument);
  CHECK(adopted(::socket(AF_UNIX, SOCK_STREAM, 0)) == StatusCode::kInvalidArgument);
  CHECK(adopted(::open("/", O_RDONLY)) == StatusCode::kInvalidArgument);
  CHECK(adopted(::open("/dev/zero", O_RDWR)) == StatusCode::kInvalidArgument);
  FILE* const file = ::tmpfile();
  REQUIRE(::ftruncate(::fileno(file), kSize) == 0);
  CHECK(adopted(::dup(::fileno(file))) == StatusCode::kInvalidArgument);
  ::fclose(file);
  CHECK(adopted(-1) == StatusCode::kInvalidArgument);

  CHECK(adopted(memory_file(kSize, true, 0)) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(kSize, true, F_SEAL_GROW)) == StatusCode::kInvalidArgument);
  // Sealed against writing, or against the seal that prevents holes.
  CHECK(adopted(memory_file(kSize, true, kSeals | F_SEAL_WRITE)) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(kSize, true, kSeals | F_SEAL_SEAL)) == StatusCode::kInvalidArgument);
  // A size that differs from the stated one, or is not a number of whole pages.
  CHECK(adopted(memory_file(2 * kSize, true, kSeals)) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(kSize, true, kSeals), 2 * kSize) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(kSize + 1, true, kSeals), kSize + 1) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(0, false, kSeals), 0) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(std::size_t{1} << 50, false, kSeals), std::size_t{1} << 50) ==
        StatusCode::kInvalidArgument);

  CHECK(adopted(memory_file(kSize, true, kSeals)) == StatusCode::kOk);
}

TEST_CASE("a page that is not there is found before it is touched, and none goes later",
          "[transport]") {
  CHECK(adopted(memory_file(kSize, false, kSeals)) == StatusCode::kInvalidArgument);
  const int holed = memory_file(kSize, true, kSeals);
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  REQUIRE(::fallocate(holed, kPunch, 4096, 4096) == 0);
  CHECK(adopted(holed) == StatusCode::kInvalidArgument);

  // This file has the right number of pages, but all of them are past its end.
  const int past = memory_file(kSize, false, 0);
  REQUIRE(::fallocate(past, FALLOC_FL_KEEP_SIZE, kSize, kSize) == 0);
  REQUIRE(::fcntl(past, F_ADD_SEALS, kSeals) == 0);
  struct stat about {};
  REQUIRE(::fstat(past, &about) == 0);
  REQUIRE(static_cast<std::size_t>(about.st_blocks) * 512 == kSize);
  CHECK(adopted(past) == StatusCode::kInvalidArgument);

  const int file = memory_file(kSize, true, kSeals);
  void* const peers = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const auto pages = Pages::adopt(Descriptor(::dup(file)), kSize).value();
  CHECK(::fallocate(file, kPunch, 0, 4096) != 0);
  CHECK(::madvise(peers, 4096, MADV_REMOVE) != 0);
  CHECK(::ftruncate(file, 0) != 0);
  std::memset(pages->bytes().data(), 5, kSize);
  CHECK(static_cast<const std::byte*>(peers)[kSize - 1] == std::byte{5});
  ::munmap(peers, kSize);
  ::close(file);
}

Descriptor copy_of(const Pages& pages) { return Descriptor(::dup(pages.descriptor())); }

TEST_CASE("a peer's buffers are mapped until they are removed, each id once", "[transport]") {
  ThreadExecutor unmapping("test", 1);
  const auto mine = Pages::make_shared(kSize).value();
  SharedBuffers buffers(unmapping);
  REQUIRE(buffers.add(2, kSize, copy_of(*mine)) == Status());
  const auto first = buffers.find(2);
  REQUIRE(first != nullptr);
  CHECK_FALSE(buffers.add(2, kSize, copy_of(*mine)).ok());
  CHECK_FALSE(buffers.add(3, 2 * kSize, copy_of(*mine)).ok());
  CHECK_FALSE(buffers.add(3, kSize, Descriptor()).ok());
  buffers.remove(2);
  buffers.remove(9);  // unknown id
  CHECK(buffers.find(2) == nullptr);
  // A thread that copies still has the pages. A file is mapped for writing only once.
  first->bytes()[0] = std::byte{1};
  CHECK(mine->bytes()[0] == std::byte{1});
  REQUIRE(buffers.add(2, kSize, copy_of(*mine)) == Status());
  CHECK_FALSE(buffers.find(2)->is_writable());
}

TEST_CASE("a peer's mappings are bounded in number and in bytes", "[transport]") {
  ThreadExecutor unmapping("test", 1);
  SharedBuffers buffers(unmapping);
  std::vector<std::unique_ptr<Pages>> mine;
  for (std::uint64_t id = 2; id < limits::kSharedBuffersMax + 5; ++id) {
    mine.push_back(Pages::make_shared(4096).value());
    REQUIRE(buffers.add(id, 4096, copy_of(*mine.back())) == Status());
    CHECK(buffers.find(2) != nullptr);  // kept, because it was used last
  }
  CHECK(buffers.find(3) == nullptr);
  CHECK(buffers.add(999, limits::kSharedBytesMax + 4096, copy_of(*mine[0])).code() ==
        StatusCode::kInvalidArgument);
  CHECK_FALSE(buffers.add(kWindowBuffer, 4096, copy_of(*Pages::make_shared(4096).value())).ok());
  REQUIRE(buffers.add(kWindowBuffer, kWindowBytes,
                      copy_of(*Pages::make_shared(kWindowBytes).value())) == Status());
  CHECK(buffers.window() != nullptr);
}

}  // namespace
}  // namespace precis
