// Events tell readers that keep a map of the stored blocks how the catalog changes.
#include "cachesvc/catalog/catalog_events.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {
namespace {

using Kind = msg::KvEvent::Kind;

msg::KvEvent event_of(const SegmentRow& row, Kind kind, std::uint64_t unix_ms) {
  msg::KvEvent event;
  event.kind = kind;
  event.unix_ms = unix_ms;
  event.segment = row.id;
  event.parent = row.parent;
  event.model = row.model;
  event.adapter = row.adapter;
  event.begin = row.begin;
  event.end = row.end;
  event.root = row.root;
  event.keep = row.trimmed.value_or(row.budget);
  return event;
}

// `node`: in service.
msg::KvEvent event_of(const SegmentNode& node, Kind kind, std::uint64_t unix_ms) {
  const SegmentRow& row = *node.row;
  msg::KvEvent event = event_of(row, kind, unix_ms);
  event.block_tokens = node.block_tokens;
  event.stored_bytes = row.stored_bytes;
  event.tier = node.durability == Durability::kMemory ? msg::KvEvent::Tier::kMemory
                                                      : msg::KvEvent::Tier::kDisk;
  if (kind != Kind::kStored) return event;
  event.blocks = row.blocks;
  if (node.parent && node.parent->boundary != row.root) event.parent_block = node.parent->boundary;
  return event;
}

}  // namespace

void CatalogEvents::tell(msg::KvEvent::Cause cause) {
  if (!event_sink_) return;
  const std::uint64_t now_ms = clock_.unix_ms();
  std::vector<TenantEvent> events;
  for (const SegmentTree::Change& change : tree_.take_changes()) {
    const SegmentRow* const before = change.before.get();
    const SegmentNode* const after = change.after;
    if (after) {
      const bool trimmed = before && before->begin == after->row->begin &&
                           before->plan.total() > after->row->plan.total();
      events.push_back(
          {after->row->tenant, event_of(*after, trimmed ? Kind::kTrimmed : Kind::kStored, now_ms)});
      if (before) events.back().event.bytes_before = before->stored_bytes;
      continue;
    }
    msg::KvEvent event = event_of(*before, Kind::kRemoved, now_ms);
    event.bytes_before = before->stored_bytes;
    event.cause = cause;
    std::ranges::copy_if(before->blocks, std::back_inserter(event.blocks),
                         [&](const Digest& block) { return !tree_.index().covers(block); });
    events.push_back({before->tenant, std::move(event)});
  }
  if (!events.empty()) event_sink_(std::move(events));
}

void CatalogEvents::tell_events(EventSink sink) {
  std::lock_guard changing(changes_);
  std::unique_lock lock(state_);
  event_sink_ = std::move(sink);
  tree_.record_changes();
}

Catalog::StoredPage CatalogEvents::stored_events(std::string_view tenant, const SegmentId& after,
                                                 std::size_t limit) const {
  SegmentId last;
  last.bytes.fill(0xFF);
  StoredPage page;
  std::shared_lock lock(state_);
  const TenantSegments* const all = tree_.of_tenant(tenant);
  if (!all) return page;
  const std::vector<SegmentId> ids = all->ids_between(after, last, limit + 1);
  std::size_t bytes = 0;
  for (const SegmentId& id : ids) {
    if (id == after) continue;
    if (page.rows.size() == limit) return page;
    const SegmentNode& node = *tree_.find(id);
    const std::size_t size = node.row->blocks.size() * sizeof(Digest);
    if (!page.rows.empty() && bytes + size > limits::kEventPageBytes) return page;
    bytes += size;
    page.last = id;
    if (!node.in_service) continue;
    page.rows.push_back(event_of(node, Kind::kStored, node.row->created_unix_ms));
  }
  if (ids.size() <= limit) page.last = {};
  return page;
}

}  // namespace precis
