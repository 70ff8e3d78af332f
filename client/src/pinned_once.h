// Memory of a pool that a device may have to reach by itself. Pinning is slow, so the memory is
// pinned when that is first asked for, and stays pinned as long as it exists.
#pragma once

#include <memory>
#include <utility>

#include "precis/page_mover.h"

namespace precis {

// `Owner` points to an object with bytes().
template <typename Owner>
class PinnedOnce {
 public:
  PinnedOnce(Owner memory) : memory_(std::move(memory)) {}  // NOLINT: implicit on purpose
  PinnedOnce(PinnedOnce&&) noexcept = default;
  PinnedOnce& operator=(PinnedOnce&& other) noexcept {  // swaps memory and pin together
    std::swap(memory_, other.memory_);
    std::swap(pin_, other.pin_);
    return *this;
  }
  auto& operator*() const { return *memory_; }
  auto* operator->() const { return &*memory_; }
  void pin(PageMover& mover) {
    if (!pin_) pin_ = mover.pin(memory_->bytes());
  }

 private:
  Owner memory_;
  std::shared_ptr<void> pin_;  // destroyed before the memory
};

}  // namespace precis
