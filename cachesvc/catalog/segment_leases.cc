#include "cachesvc/catalog/segment_leases.h"

#include <algorithm>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// Memory of a lease whose segment was removed: the row with its map entries, and the location of
// each layer's payload.
constexpr std::uint64_t kLeaseBytes = 640, kLayerBytes = 224;

std::uint64_t bytes_of(const SegmentRow& row) {
  return kLeaseBytes + row.tenant.size() + row.adapter.size() + row.recipe.size() +
         row.preset.size() + row.layer_bytes.size() * kLayerBytes +
         row.plan.counts.size() * sizeof(std::uint32_t);
}

// Copies the row without the path. The path is the larger part of a long row, and only lookups need
// it.
SegmentLeases::Row without_path(const SegmentRow& row) {
  SegmentRow copy = row;
  copy.blocks = {};
  copy.tail = {};
  return std::make_shared<const SegmentRow>(std::move(copy));
}

}  // namespace

std::uint32_t SegmentLeases::grant(std::span<const Row> rows, std::uint32_t ms) {
  ms = std::min(ms, limits::kLeaseMsMax);
  if (rows.empty() || ms == 0) return 0;
  const std::string& tenant = rows.front()->tenant;
  std::map<Version, std::uint64_t> wanted;  // bytes of each
  for (const Row& row : rows) wanted.emplace(Version::of(*row), bytes_of(*row));
  std::lock_guard lock(mutex_);
  const auto is_being_removed = [&](const Row& row) { return being_removed_.contains(row); };
  if (std::ranges::any_of(rows, is_being_removed)) return 0;
  end_expired();
  std::uint64_t more = 0;
  for (const auto& [version, bytes] : wanted) {
    const auto lease = leases_.find(version);
    if (lease == leases_.end()) more += bytes;
    // A removed segment, not this one, has this version.
    if (lease != leases_.end() && lease->second.held) return 0;
  }
  const auto own = bytes_of_.find(tenant);
  const std::uint64_t taken = own == bytes_of_.end() ? 0 : own->second;
  if (more > bounds_.of_tenant - taken || more > bounds_.of_all - bytes_ - ended_bytes_) return 0;
  const std::uint64_t until_ns = clock_.monotonic_ns() + std::uint64_t{ms} * 1'000'000;
  for (const auto& [version, bytes] : wanted) {
    const auto [lease, added] = leases_.try_emplace(version, Lease{tenant, until_ns, bytes});
    if (!added) {
      ends_.erase({lease->second.until_ns, version});
      lease->second.until_ns = std::max(lease->second.until_ns, until_ns);
    }
    ends_.emplace(lease->second.until_ns, version);
  }
  if (more > 0) bytes_of_[tenant] += more;
  bytes_ += more;
  return ms;
}

SegmentLeases::Removal::Removal(SegmentLeases& leases, std::vector<Row> rows, bool may_wait)
    : leases_(leases), rows_(std::move(rows)) {
  std::vector<Row> leased;
  {
    std::lock_guard lock(leases_.mutex_);
    PRECIS_CHECK(leases_.being_removed_.empty());
    leases_.being_removed_ = {rows_.begin(), rows_.end()};
    if (leases_.leases_.empty()) return;
    for (const Row& row : rows_) {
      if (leases_.leases_.contains(Version::of(*row))) leased.push_back(row);
    }
  }
  for (const Row& row : leased) {
    std::vector<std::string> keys;
    for (std::uint32_t l = 0; l < row->layer_bytes.size(); ++l) {
      keys.push_back(payload_key(row->id, l));
    }
    auto layers = leases_.store_.keep(keys, may_wait);
    if (!layers) {
      may_wait = false;  // do not wait again for a disk that accepts nothing
      continue;
    }
    auto held = std::make_shared<const Held>(Held{without_path(*row), std::move(layers)});
    std::lock_guard lock(leases_.mutex_);
    const auto lease = leases_.leases_.find(Version::of(*row));
    if (lease != leases_.leases_.end()) leases_.set_held(lease->second, std::move(held));
  }
}

SegmentLeases::Removal::~Removal() {
  std::lock_guard lock(leases_.mutex_);
  leases_.being_removed_.clear();
  if (leases_.leases_.empty()) return;
  for (const Row& row : rows_) {
    const auto lease = leases_.leases_.find(Version::of(*row));
    if (lease == leases_.leases_.end()) continue;
    if (!applied_) {
      leases_.set_held(lease->second, nullptr);
    } else if (!lease->second.held) {
      leases_.end(lease);  // the store could not keep it
    }
  }
}

std::shared_ptr<const SegmentLeases::Held> SegmentLeases::find(std::string_view tenant,
                                                               const Version& version) const {
  if (!holds_any()) return nullptr;
  std::lock_guard lock(mutex_);
  const auto lease = leases_.find(version);
  if (lease == leases_.end() || lease->second.tenant != tenant) return nullptr;
  return clock_.monotonic_ns() < lease->second.until_ns ? lease->second.held : nullptr;
}

bool SegmentLeases::knows(const Version& version) const {
  std::lock_guard lock(mutex_);
  return leases_.contains(version);
}

void SegmentLeases::set_held(Lease& lease, std::shared_ptr<const Held> held) {
  if (held) ++held_;
  if (lease.held) {
    --held_;
    ended_.push_back(std::move(lease.held));
  }
  lease.held = std::move(held);
}

void SegmentLeases::end(Leases::iterator lease) {
  auto& [version, ending] = *lease;
  bytes_ -= ending.bytes;
  if (ending.held) ended_bytes_ += ending.bytes;
  const auto own = bytes_of_.find(ending.tenant);
  own->second -= ending.bytes;
  if (own->second == 0) bytes_of_.erase(own);
  ends_.erase({ending.until_ns, version});
  set_held(ending, nullptr);
  leases_.erase(lease);
}

void SegmentLeases::end_expired() {
  const std::uint64_t now_ns = clock_.monotonic_ns();
  while (!ends_.empty() && ends_.begin()->first <= now_ns) {
    end(leases_.find(ends_.begin()->second));
  }
}

void SegmentLeases::sweep(bool short_of_space) {
  std::vector<std::shared_ptr<const Held>> ended;  // freed after mutex_ is unlocked
  std::lock_guard lock(mutex_);
  end_expired();
  std::size_t giving_way = short_of_space ? (held_ + 1) / 2 : 0;
  for (auto next = ends_.begin(); giving_way > 0;) {
    const auto lease = leases_.find((next++)->second);
    if (!lease->second.held) continue;
    end(lease);
    --giving_way;
  }
  ended.swap(ended_);
  ended_bytes_ = 0;
}

std::uint64_t SegmentLeases::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace precis
