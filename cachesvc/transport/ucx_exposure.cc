#include "cachesvc/transport/ucx_exposure.h"

#include <chrono>
#include <utility>

#include "cachesvc/transport/ucx_pages.h"

namespace precis {
namespace {

using std::chrono::steady_clock;

// How long the end of an Exposure waits for what is under way on it before it ends the link.
constexpr std::chrono::seconds kExposureTimeout{2};

}  // namespace

UcxExposure::UcxExposure(std::shared_ptr<UcxLink> link, const UcxMemory& memory, MutableBytes part)
    : link_(std::move(link)), table_(link_->regions()) {
  region_.id = table_->add(part);
  region_.address = reinterpret_cast<std::uintptr_t>(part.data());
  region_.size_bytes = part.size();
  RegionKey key;
  if (link_->window()) slot_ = link_->window()->claim(region_.id);
  key.host_slot = reinterpret_cast<std::uintptr_t>(slot_);
  if (memory.pages() != nullptr) memory.pages()->name_in(key, part, link_);
  key.ucx = memory.key();
  region_.key = encode_region_key(key);
  if (link_->announces()) {
    // Shared with the call only: std::function wants what it holds to be copyable.
    auto leave = std::make_shared<RegionTable::Access>(
        table_->access(region_.id, 0, region_.size_bytes).value());
    on_loop([link = link_, id = region_.id, leave = std::move(leave)] {
      link->announce(id, std::move(*leave));
    });
  }
}

UcxExposure::~UcxExposure() {
  table_->retire(region_.id);
  if (link_->announces()) on_loop([link = link_, id = region_.id] { link->revoke(id); });
  if (slot_ != nullptr) link_->window()->release(slot_);
  if (!table_->wait_until_idle(region_.id, std::chrono::nanoseconds(0))) finish();
  table_->remove(region_.id);
}

// At once where this is the loop's thread: it may be about to wait here.
void UcxExposure::on_loop(std::function<void()> fn) {
  if (link_->loop().on_loop_thread()) return fn();
  link_->loop().post(std::move(fn));
}

// Operations under way end within a bound, or by the end of the link.
void UcxExposure::finish() {
  const Status late = Status::canceled("memory was taken back while it was being transferred");
  if (!link_->loop().on_loop_thread()) {
    if (table_->wait_until_idle(region_.id, kExposureTimeout)) return;
    link_->loop().post([link = link_, late] { link->end(late); });
    table_->wait_until_idle(region_.id);
    return;
  }
  const auto deadline = steady_clock::now() + kExposureTimeout;
  while (!table_->wait_until_idle(region_.id, std::chrono::nanoseconds(0))) {
    link_->progress();
    if (steady_clock::now() > deadline) link_->end(late);
  }
}

}  // namespace precis
