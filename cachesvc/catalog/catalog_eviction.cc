#include "cachesvc/catalog/catalog_eviction.h"

#include <algorithm>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// The most layers that one change removes from the local store, so that others need not wait long.
constexpr std::size_t kLayersOfRemoval = 4096;

}  // namespace

bool is_newer(const SegmentRow& row, const SegmentRow& than) {
  if (row.created_unix_ms != than.created_unix_ms) {
    return row.created_unix_ms > than.created_unix_ms;
  }
  return row.plan.total() < than.plan.total();
}

Status CatalogEviction::erase_some(std::span<const Row>& rows) {
  Change change;
  for (std::size_t layers = 0; !rows.empty() && layers < kLayersOfRemoval; rows = rows.subspan(1)) {
    const SegmentId& id = rows.front()->id;
    change.erase_segment_here(*rows.front());
    if (marks_.erase(id) > 0) change.erase(Table::kMeta, quarantine_key(id));
    marks_to_save_.erase(id);
    layers += rows.front()->layer_bytes.size() + 1;
  }
  return store_.write(change.batch(), Durability::kFsync);  // as CatalogRemovals
}

void CatalogEviction::remove_here(const std::vector<bool>& shards) {
  std::vector<Row> rows;
  {
    std::lock_guard changing(changes_);
    std::erase_if(kept_here_, [&](const auto& kept) {
      const bool goes = shards.at(kept.first.first);
      if (goes) rows.push_back(kept.second);
      return goes;
    });
  }
  for (std::span<const Row> left(rows); !left.empty();) {
    std::lock_guard changing(changes_);
    if (!erase_some(left).ok()) return;
  }
}

std::uint64_t CatalogEviction::local_bytes(const SegmentId& segment) const {
  return store_.held_bytes(segment_key(segment));  // with which the keys of its layers begin
}

std::vector<ShardCatalog::SegmentPtr> CatalogEviction::eviction_order(
    const std::vector<bool>& own) {
  struct Placed {
    bool is_own = false;
    std::uint64_t used_unix_ms = 0;
    SegmentPtr row;
  };
  std::vector<Placed> all;
  {
    std::lock_guard changing(changes_);
    for (const auto& [key, row] : kept_here_) {
      const bool is_own = key.first < own.size() && own[key.first];
      all.push_back({is_own, std::max(row->last_used_unix_ms, row->created_unix_ms), row});
    }
  }
  {
    std::shared_lock lock(state_);
    for (const auto& [id, node] : tree_.nodes()) {
      if (!node.row->shard) continue;
      const std::uint64_t used = node.last_used_unix_ms;
      all.push_back({true, std::max(used, node.row->created_unix_ms), node.row});
    }
  }
  std::ranges::sort(all, {}, [](const Placed& p) { return std::pair(p.is_own, p.used_unix_ms); });
  std::vector<SegmentPtr> order;
  order.reserve(all.size());
  for (Placed& each : all) order.push_back(std::move(each.row));
  return order;
}

// A loaded segment keeps its row. It goes on to be served, and its layers are read from the shared
// storage.
Result<ShardCatalog::Evicted> CatalogEviction::evict(std::span<const Evictable> segments) {
  using Version = SegmentLeases::Version;
  std::lock_guard changing(changes_);
  Change change;
  std::vector<Row> former;  // of shards that are not loaded
  Evicted evicted;
  std::uint64_t lost = 0;
  for (const Evictable& each : segments) {
    const SegmentRow& row = *each.row;
    const bool is_shared = each.shared && Version::of(*each.shared) == Version::of(row);
    const SegmentNode* const node = tree_.find(row.id);
    const auto kept = kept_here_.find({row.shard.value(), row.id});
    const bool is_loaded = node && node->row == each.row;
    const bool is_kept = !is_loaded && kept != kept_here_.end() && kept->second == each.row;
    const bool is_old = each.is_others || (each.shared && is_newer(*each.shared, row));
    if (is_loaded ? !is_shared : !is_kept || !(is_shared || is_old)) continue;
    const std::uint64_t bytes = local_bytes(row.id);
    if (bytes == 0) continue;
    evicted.bytes += bytes;
    ++evicted.segments;
    if (is_kept) former.push_back(each.row);
    if (is_kept && !each.shared) ++lost;
    for (std::uint32_t l = 0; is_loaded && l < row.layer_bytes.size(); ++l) {
      change.erase(Table::kPayload, payload_key(row.id, l));
    }
  }
  for (std::span<const Row> left(former); !left.empty();) PRECIS_TRY(erase_some(left));
  for (const Row& row : former) kept_here_.erase({*row->shard, row->id});
  lost_segments_ += lost;
  // If a crash brings the layers back, they are copies again.
  if (!change.batch().deletes.empty()) {
    PRECIS_TRY(store_.write(change.batch(), Durability::kMemory));
  }
  return evicted;
}

// No change follows, so the rows come back only together with their layers, in a crash.
void CatalogEviction::forget_evicted() {
  std::lock_guard changing(changes_);
  Change change;
  for (const auto& [key, row] : kept_here_) {
    if (local_bytes(row->id) > 0 || is_marked(row->id)) continue;
    change.erase(Table::kSegments, segment_key(row->id));
  }
  if (!change.batch().deletes.empty()) (void)store_.write(change.batch(), Durability::kMemory);
}

}  // namespace precis
