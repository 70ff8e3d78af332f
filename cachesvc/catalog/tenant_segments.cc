#include "cachesvc/catalog/tenant_segments.h"

namespace precis {

void TenantSegments::take_in(const SegmentNode& node) {
  by_age_.emplace(age_of(node), &node);
  by_id_.emplace(node.row->id, &node);
  ++totals_.segments;
  totals_.stored_bytes += node.row->stored_bytes;
  totals_.original_bytes += node.row->original_bytes;
}

void TenantSegments::take_out(const SegmentNode& node) {
  by_age_.erase(age_of(node));
  by_id_.erase(node.row->id);
  --totals_.segments;
  totals_.stored_bytes -= node.row->stored_bytes;
  totals_.original_bytes -= node.row->original_bytes;
}

std::vector<SegmentId> TenantSegments::ids_between(const SegmentId& first, const SegmentId& last,
                                                   std::size_t limit) const {
  std::vector<SegmentId> ids;
  for (auto row = by_id_.lower_bound(first); row != by_id_.end() && !(last < row->first); ++row) {
    if (ids.size() == limit) break;
    ids.push_back(row->first);
  }
  return ids;
}

}  // namespace precis
