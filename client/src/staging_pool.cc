#include "client/src/staging_pool.h"

#include <utility>

#include "precis/limits.h"

namespace precis {
namespace {

// Buffer sizes are multiples of this, so that one layer's buffer also fits a slightly longer layer.
constexpr std::size_t kStepBytes = std::size_t{2} << 20;

}  // namespace

Result<std::unique_ptr<StagingPool::Buffer>> StagingPool::allocate(std::size_t size_bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto memory = kept_.begin(); memory != kept_.end(); ++memory) {
      const std::size_t size = (*memory)->bytes().size();
      if (size < size_bytes) continue;
      if (best == kept_.end() || size <= (*best)->bytes().size()) best = memory;
    }
    if (best != kept_.end()) {
      auto memory = std::move(*best);
      kept_.erase(best);
      return std::make_unique<Buffer>(shared_from_this(), std::move(memory));
    }
  }
  const std::size_t steps = size_bytes / kStepBytes + 1;
  PRECIS_ASSIGN(auto memory, memory_->allocate(steps * kStepBytes));
  return std::make_unique<Buffer>(shared_from_this(), std::move(memory));
}

void StagingPool::take_back(PinnedOnce<std::shared_ptr<HostBuffer>> memory) {
  std::vector<PinnedOnce<std::shared_ptr<HostBuffer>>> dropped;  // unmapped after unlocking
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
  std::size_t kept_bytes = 0;
  for (const auto& kept : kept_) kept_bytes += kept->bytes().size();
  while (kept_.size() > limits::kStagingBuffersKeptMax ||
         kept_bytes > limits::kStagingBytesKeptMax) {
    kept_bytes -= kept_.front()->bytes().size();
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

}  // namespace precis
