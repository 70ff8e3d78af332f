#include "cachesvc/transport/ucx_pages.h"

#include <algorithm>

namespace precis {

void UcxPages::name_in(RegionKey& key, MutableBytes region, const std::shared_ptr<UcxLink>& link) {
  if (pages_->descriptor() < 0 || !link->window()) return;
  key.pages = id_;
  key.pages_descriptor = static_cast<std::uint32_t>(pages_->descriptor());
  key.pages_bytes = pages_->bytes().size();
  key.pages_offset = static_cast<std::uint64_t>(region.data() - pages_->bytes().data());
  const std::lock_guard lock(mutex_);
  std::erase_if(told_, [](const auto& told) { return told.expired(); });
  const bool known = std::any_of(told_.begin(), told_.end(),
                                 [&](const auto& told) { return told.lock() == link; });
  if (!known) told_.push_back(link);
}

UcxPages::~UcxPages() {
  for (const auto& told : told_) {
    const auto link = told.lock();
    if (!link) continue;
    link->loop().post([link, id = id_] { link->drop_pages(id); });
  }
}

}  // namespace precis
