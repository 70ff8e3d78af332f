#include "tests/hostile/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "precis/status.h"

namespace precis::hostile {

MemoryFile::MemoryFile(std::size_t size_bytes, const FileShape& shape)
    : file_(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const auto size = static_cast<off_t>(size_bytes);
  PRECIS_CHECK(file_ && ::ftruncate(descriptor(), size) == 0);
  if (shape.filled) {
    void* const mapped =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor(), 0);
    PRECIS_CHECK(mapped != MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(mapped), size_bytes};
    std::memset(mapped, 0, size_bytes);
  }
  if (shape.punched) {
    PRECIS_CHECK(
        ::fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 2, 4096) == 0);
  }
  if (shape.sealed) {
    PRECIS_CHECK(::fcntl(descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  }
}

MemoryFile::~MemoryFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace precis::hostile
