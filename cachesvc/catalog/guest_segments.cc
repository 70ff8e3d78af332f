#include "cachesvc/catalog/guest_segments.h"

#include <algorithm>
#include <tuple>

#include "cachesvc/catalog/segment_leases.h"
#include "cachesvc/catalog/segment_tree.h"

namespace precis {
namespace {

constexpr std::uint64_t kStaysNs = 60'000'000'000;

}  // namespace

void GuestSegments::keep(SegmentRow row, std::uint64_t until_ns, std::uint64_t now_ns) {
  row.blocks = {};  // only lookups need the path
  row.tail = {};
  if (kept_bytes(row) > bounds_.bytes) return;
  auto fresh = std::make_shared<const SegmentRow>(std::move(row));
  const std::lock_guard lock(mutex_);
  const auto known = guests_.find(fresh->id);
  if (known != guests_.end()) {
    const Row before = known->second.row;
    using Version = SegmentLeases::Version;
    if (before->tenant == fresh->tenant && Version::of(*before) == Version::of(*fresh)) {
      fresh = before;
    }
    forget(before->id);
  }
  add(std::move(fresh), until_ns);
  make_room(now_ns);
}

GuestSegments::Row GuestSegments::find(std::string_view tenant, const SegmentId& id,
                                       std::uint64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  const auto guest = guests_.find(id);
  if (guest == guests_.end() || guest->second.row->tenant != tenant) return nullptr;
  return now_ns < guest->second.until_ns ? guest->second.row : nullptr;
}

bool GuestSegments::knows(const SegmentRow& row) const {
  const std::lock_guard lock(mutex_);
  const auto guest = guests_.find(row.id);
  return guest != guests_.end() && guest->second.row.get() == &row;
}

std::vector<SegmentId> GuestSegments::end(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  std::vector<SegmentId> ended = std::exchange(yielded_, {});
  std::vector<SegmentId> late;
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [until_ns, id] : tenant.by_time) {
      if (now_ns < until_ns + kStaysNs) break;
      late.push_back(id);
    }
  }
  for (const SegmentId& id : late) forget(id);
  ended.insert(ended.end(), late.begin(), late.end());
  // One that was kept again is still served.
  std::erase_if(ended, [this](const SegmentId& id) { return guests_.contains(id); });
  return ended;
}

void GuestSegments::add(Row row, std::uint64_t until_ns) {
  GuestsOfTenant& tenant = tenants_[row->tenant];
  const std::uint64_t bytes = kept_bytes(*row);
  tenant.by_time.emplace(until_ns, row->id);
  tenant.bytes += bytes;
  bytes_ += bytes;
  guests_[row->id] = {row, until_ns};
}

void GuestSegments::forget(const SegmentId& id) {
  const auto guest = guests_.find(id);
  const SegmentRow& row = *guest->second.row;
  const auto tenant = tenants_.find(row.tenant);
  const std::uint64_t bytes = kept_bytes(row);
  tenant->second.by_time.erase({guest->second.until_ns, id});
  tenant->second.bytes -= bytes;
  bytes_ -= bytes;
  if (tenant->second.by_time.empty()) tenants_.erase(tenant);
  guests_.erase(guest);
}

// Those whose time has passed go first, then the oldest of the tenant that has the most.
void GuestSegments::make_room(std::uint64_t now_ns) {
  while (guests_.size() > bounds_.segments || bytes_ > bounds_.bytes) {
    const auto gone = std::ranges::max_element(tenants_, {}, [&](const auto& each) {
      const GuestsOfTenant& tenant = each.second;
      const bool is_late = tenant.by_time.begin()->first <= now_ns;
      return std::tuple(is_late, tenant.bytes, tenant.by_time.size());
    });
    const SegmentId id = gone->second.by_time.begin()->second;
    yielded_.push_back(id);
    forget(id);
  }
}

}  // namespace precis
