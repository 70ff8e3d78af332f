#include "client/src/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace precis {
namespace {

// A kept buffer that is more than this many times as large as needed is left for a larger get.
constexpr std::size_t kSlackMax = 4;
// The size of the smallest buffer. A smaller get is treated as this large.
constexpr std::size_t kSmallestBytes = std::size_t{2} << 20;

}  // namespace

Result<std::unique_ptr<BufferPool::Buffer>> BufferPool::allocate(std::size_t size_bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto memory = kept_.begin(); memory != kept_.end(); ++memory) {
      const std::size_t size = (*memory)->bytes().size();
      if (size < size_bytes || size / kSlackMax > std::max(size_bytes, kSmallestBytes)) continue;
      if (best == kept_.end() || size < (*best)->bytes().size()) best = memory;
    }
    if (best != kept_.end()) {
      auto memory = std::move(*best);
      kept_.erase(best);
      return std::make_unique<Buffer>(*this, std::move(memory));
    }
  }
  auto memory = transport_.allocate_memory(size_bytes);
  PRECIS_TRY(memory.status().with_context("get"));
  return std::make_unique<Buffer>(*this, std::move(*memory));
}

void BufferPool::take_back(PinnedOnce<std::unique_ptr<Registration>> memory) {
  // Destroyed, and so unmapped, after the lock is released.
  std::vector<PinnedOnce<std::unique_ptr<Registration>>> dropped;
  if (memory->bytes().size() > kKeptBytesMax) return;  // and no kept buffer is dropped for it
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
  std::size_t kept_bytes = 0;
  for (const auto& kept : kept_) kept_bytes += kept->bytes().size();
  while (kept_.size() > kKeptBuffersMax || kept_bytes > kKeptBytesMax) {
    kept_bytes -= kept_.front()->bytes().size();
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

}  // namespace precis
