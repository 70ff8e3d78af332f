// Memory of a pool that a device may have to reach by itself: pinned when that is first asked for,
// which takes a while, and from then on as long as it is there.
#pragma once

#include <memory>
#include <utility>

#include "precis/page_mover.h"

namespace precis {

// `Owner` points to what has bytes().
template <typename Owner>
class PinnedOnce {
 public:
  PinnedOnce(Owner memory) : memory_(std::move(memory)) {}  // NOLINT: implicit on purpose
  PinnedOnce(PinnedOnce&&) noexcept = default;
  PinnedOnce& operator=(PinnedOnce&& other) noexcept {  // what was here goes as one
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
  std::shared_ptr<void> pin_;  // goes before the memory
};

}  // namespace precis
