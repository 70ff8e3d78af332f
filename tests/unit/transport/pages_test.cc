// Memory shared between processes, and what a peer may try with it (pages.h, peer_pages.h).
#include "cachesvc/transport/pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "cachesvc/transport/peer_pages.h"

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
  const StatusCode code = Pages::adopt(descriptor, size).status().code();
  if (code != StatusCode::kOk) {
    CHECK((descriptor < 0 || ::close(descriptor) == 0));  // it stayed the caller's
  } else {
    CHECK(::fcntl(descriptor, F_GETFD) < 0);
  }
  return code;
}

std::shared_ptr<HostPeer> myself() {
  HostWindow window;
  window.answer({});
  return HostPeer::prove(static_cast<std::uint32_t>(getpid()), window.challenge_address(), {})
      .value();
}

TEST_CASE("what one side writes to shared pages the other reads", "[transport]") {
  const auto mine = Pages::make_shared(3 * kSize - 5).value();
  REQUIRE(mine->bytes().size() == 3 * kSize);
  const auto theirs = Pages::adopt(::dup(mine->descriptor()), 3 * kSize).value();
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
  // Sealed against writing, or against the seal that keeps holes away.
  CHECK(adopted(memory_file(kSize, true, kSeals | F_SEAL_WRITE)) == StatusCode::kInvalidArgument);
  CHECK(adopted(memory_file(kSize, true, kSeals | F_SEAL_SEAL)) == StatusCode::kInvalidArgument);
  // Of another size than is said, or of one that is no number of pages.
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

  // As many pages as it should have, all of them past its end.
  const int past = memory_file(kSize, false, 0);
  REQUIRE(::fallocate(past, FALLOC_FL_KEEP_SIZE, kSize, kSize) == 0);
  REQUIRE(::fcntl(past, F_ADD_SEALS, kSeals) == 0);
  struct stat about {};
  REQUIRE(::fstat(past, &about) == 0);
  REQUIRE(static_cast<std::size_t>(about.st_blocks) * 512 == kSize);
  CHECK(adopted(past) == StatusCode::kInvalidArgument);

  const int file = memory_file(kSize, true, kSeals);
  void* const peers = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const auto pages = Pages::adopt(::dup(file), kSize).value();
  CHECK(::fallocate(file, kPunch, 0, 4096) != 0);
  CHECK(::madvise(peers, 4096, MADV_REMOVE) != 0);
  CHECK(::ftruncate(file, 0) != 0);
  std::memset(pages->bytes().data(), 5, kSize);
  CHECK(static_cast<const std::byte*>(peers)[kSize - 1] == std::byte{5});
  ::munmap(peers, kSize);
  ::close(file);
}

TEST_CASE("a peer's descriptor that is not there, or not such memory, is not mapped",
          "[transport]") {
  const auto peer = myself();
  for (const std::uint32_t descriptor : {9'999u, 0x7fffffffu, 0xffffffffu}) {
    CHECK(peer->map(descriptor, kSize).status().code() == StatusCode::kUnsupported);
  }
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  CHECK(peer->map(static_cast<std::uint32_t>(ends[1]), kSize).status().code() ==
        StatusCode::kInvalidArgument);
  ::close(ends[1]);
  char byte;
  CHECK(::read(ends[0], &byte, 1) == 0);  // returns once the copy, too, is closed
  ::close(ends[0]);
  const int file = memory_file(kSize, true, 0);
  CHECK(peer->map(static_cast<std::uint32_t>(file), kSize).status().code() ==
        StatusCode::kInvalidArgument);
  REQUIRE(::fcntl(file, F_ADD_SEALS, kSeals) == 0);
  CHECK(peer->map(static_cast<std::uint32_t>(file), kSize).ok());
  ::close(file);
}

TEST_CASE("a peer's pages are mapped once, and until they are dropped", "[transport]") {
  Executor unmapping("test", 1);
  const auto mine = Pages::make_shared(kSize).value();
  const auto descriptor = static_cast<std::uint32_t>(mine->descriptor());
  PeerPages mapped(myself(), unmapping);
  const auto first = mapped.find(1, descriptor, kSize);
  REQUIRE(first != nullptr);
  CHECK(mapped.find(1, descriptor, kSize) == first);
  CHECK(mapped.find(1, descriptor, 2 * kSize) == nullptr);
  mapped.drop(1);
  mapped.drop(2);  // never was
  // Whoever copies still has them; and a file is mapped to be written to but once.
  first->bytes()[0] = std::byte{1};
  CHECK(mine->bytes()[0] == std::byte{1});
  const auto again = mapped.find(1, descriptor, kSize);
  REQUIRE(again != nullptr);
  CHECK(first->is_writable());
  CHECK_FALSE(again->is_writable());
  CHECK(again->bytes()[0] == std::byte{1});
}

TEST_CASE("a peer's mappings are bounded in number and in bytes", "[transport]") {
  Executor unmapping("test", 1);
  std::vector<std::unique_ptr<Pages>> mine;
  for (int i = 0; i < 4; ++i) mine.push_back(Pages::make_shared(kSize).value());
  const auto large = Pages::make_shared(4 * kSize).value();
  PeerPages mapped(myself(), unmapping, {.count = 3, .bytes = 3 * kSize});
  const auto find = [&](std::size_t i) {
    return mapped.find(i, static_cast<std::uint32_t>(mine[i]->descriptor()), kSize);
  };
  std::vector<std::weak_ptr<const Pages>> seen;
  for (std::size_t i = 0; i < 3; ++i) seen.push_back(find(i));
  CHECK(find(0) == seen[0].lock());  // the longest unused is the second now
  CHECK(find(3) != nullptr);
  CHECK(mapped.find(9, static_cast<std::uint32_t>(large->descriptor()), large->bytes().size()) ==
        nullptr);
  CHECK(seen[0].lock() != nullptr);
  CHECK(seen[2].lock() != nullptr);
  CHECK_FALSE(find(1)->is_writable());  // it gave way, and for good to who writes
  mapped.clear();
}

}  // namespace
}  // namespace precis
