#include "client/src/host_memory.h"

#include <functional>
#include <iterator>
#include <utility>

namespace precis {
namespace {

class OwnedBuffer final : public HostBuffer {
 public:
  OwnedBuffer(std::shared_ptr<void> keep_alive, std::shared_ptr<Registration> memory,
              std::size_t size_bytes)
      : keep_alive_(std::move(keep_alive)), memory_(std::move(memory)), size_bytes_(size_bytes) {}
  MutableBytes bytes() const override { return memory_->bytes().first(size_bytes_); }

 private:
  const std::shared_ptr<void> keep_alive_;
  const std::shared_ptr<Registration> memory_;  // shared with the pushes in flight
  const std::size_t size_bytes_;
};

}  // namespace

Result<std::shared_ptr<HostBuffer>> HostMemory::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return Status::invalid("size_bytes is 0, must be at least 1");
  auto made = transport_.allocate_memory(size_bytes);
  PRECIS_TRY(made.status().with_context("allocate"));
  const std::shared_ptr<Registration> memory = std::move(*made);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(buffers_, [](const auto& buffer) { return buffer.second.expired(); });
    buffers_[memory->bytes().data()] = memory;
  }
  return std::shared_ptr<HostBuffer>(
      std::make_shared<OwnedBuffer>(keep_alive_, memory, size_bytes));
}

std::shared_ptr<Registration> HostMemory::find(Bytes memory) const {
  std::shared_ptr<Registration> found;
  {
    const std::lock_guard lock(mutex_);
    auto behind = buffers_.upper_bound(memory.data());
    if (behind == buffers_.begin()) return nullptr;
    found = std::prev(behind)->second.lock();
  }
  if (!found) return nullptr;
  const MutableBytes all = found->bytes();
  const std::less_equal<const std::byte*> le;
  return le(memory.data() + memory.size(), all.data() + all.size()) ? found : nullptr;
}

}  // namespace precis
