#include "cachesvc/transport/peer_pages.h"

#include <algorithm>
#include <utility>

namespace precis {

std::shared_ptr<const Pages> PeerPages::find(std::uint64_t id, std::uint32_t descriptor,
                                             std::uint64_t size_bytes) {
  const auto known = std::find_if(mapped_.begin(), mapped_.end(),
                                  [&](const Mapped& mapped) { return mapped.id == id; });
  if (known != mapped_.end()) {
    mapped_.splice(mapped_.end(), mapped_, known);
    return known->size_bytes == size_bytes ? known->pages : nullptr;
  }
  if (size_bytes > limits_.bytes) return nullptr;
  while (mapped_.size() >= limits_.count || mapped_bytes_ > limits_.bytes - size_bytes) {
    let_go(mapped_.begin());
  }
  auto pages = peer_->map(descriptor, size_bytes);
  const std::shared_ptr<const Pages> shared = pages.ok() ? std::move(*pages) : nullptr;
  mapped_.push_back({id, shared ? size_bytes : 0, shared});
  mapped_bytes_ += mapped_.back().size_bytes;
  return shared;
}

void PeerPages::let_go(std::list<Mapped>::iterator mapped) {
  mapped_bytes_ -= mapped->size_bytes;
  if (mapped->pages) unmapping_.post([pages = std::move(mapped->pages)] {});
  mapped_.erase(mapped);
}

void PeerPages::drop(std::uint64_t id) {
  const auto known = std::find_if(mapped_.begin(), mapped_.end(),
                                  [&](const Mapped& mapped) { return mapped.id == id; });
  if (known != mapped_.end()) let_go(known);
}

void PeerPages::clear() {
  while (!mapped_.empty()) let_go(mapped_.begin());
}

}  // namespace precis
