#include "client/src/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace precis {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// No machine maps more; below it, rounding up cannot overflow.
constexpr std::size_t kMappableBytesMax = std::size_t{1} << 56;

// A buffer more than this many times too large is left for a larger get.
constexpr std::size_t kSlackMax = 4;

std::size_t round_up(std::size_t n) {
  return (n + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

Status no_memory(std::size_t size_bytes, int error) {
  return Status::out_of_space("no memory for a get of " + std::to_string(size_bytes) +
                              " B: " + std::generic_category().message(error));
}

}  // namespace

void UnmapMemory::operator()(std::byte* memory) const { ::munmap(memory, size_bytes); }

Result<std::unique_ptr<BufferPool::Buffer>> BufferPool::allocate(std::size_t size_bytes) {
  if (size_bytes > kMappableBytesMax) return no_memory(size_bytes, ENOMEM);
  const std::size_t wanted = std::max(round_up(size_bytes), kHugePageBytes);
  {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto block = kept_.begin(); block != kept_.end(); ++block) {
      const std::size_t size = block->size_bytes();
      if (size < wanted || size / kSlackMax > wanted) continue;
      if (best == kept_.end() || size < best->size_bytes()) best = block;
    }
    if (best != kept_.end()) {
      PooledBlock block = std::move(*best);
      kept_.erase(best);
      return std::make_unique<Buffer>(*this, std::move(block));
    }
  }
  PRECIS_ASSIGN(PooledBlock block, map(wanted));
  return std::make_unique<Buffer>(*this, std::move(block));
}

Result<PooledBlock> BufferPool::map(std::size_t size_bytes) const {
  // Mapped with room to spare and trimmed, so that huge pages fit from its first byte on.
  void* mapped = ::mmap(nullptr, size_bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return no_memory(size_bytes, errno);
  auto* first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = round_up(address) - address;
  if (before > 0) ::munmap(first, before);
  if (before < kHugePageBytes) ::munmap(first + before + size_bytes, kHugePageBytes - before);
  ::madvise(first + before, size_bytes, MADV_HUGEPAGE);  // A wish: a refusal costs speed alone.

  PooledBlock block;
  block.memory = {first + before, UnmapMemory{size_bytes}};
  PRECIS_ASSIGN(block.registration, transport_.register_memory({block.memory.get(), size_bytes}));
  return block;
}

void BufferPool::take_back(PooledBlock block) {
  std::vector<PooledBlock> dropped;  // unmapped after the lock is gone
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(block));
  std::size_t kept_bytes = 0;
  for (const PooledBlock& kept : kept_) kept_bytes += kept.size_bytes();
  while (kept_.size() > kKeptBuffersMax || kept_bytes > kKeptBytesMax) {
    kept_bytes -= kept_.front().size_bytes();
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

}  // namespace precis
