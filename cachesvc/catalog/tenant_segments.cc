#include "cachesvc/catalog/tenant_segments.h"

namespace precis {

void TenantSegments::take_in(const SegmentNode& node) {
  if (node.pins > 0) totals_.pinned_bytes += node.row->stored_bytes;
  by_age_.emplace(age_of(node), &node);
  by_id_.emplace(node.row->id, &node);
  for (Totals* const totals : {&totals_, &of_models_[node.row->model]}) {
    ++totals->segments;
    totals->stored_bytes += node.row->stored_bytes;
    totals->original_bytes += node.row->original_bytes;
  }
}

void TenantSegments::take_out(const SegmentNode& node) {
  if (node.pins > 0) totals_.pinned_bytes -= node.row->stored_bytes;
  by_age_.erase(age_of(node));
  by_id_.erase(node.row->id);
  const auto of_model = of_models_.find(node.row->model);
  for (Totals* const totals : {&totals_, &of_model->second}) {
    --totals->segments;
    totals->stored_bytes -= node.row->stored_bytes;
    totals->original_bytes -= node.row->original_bytes;
  }
  if (of_model->second.segments == 0) of_models_.erase(of_model);
}

void TenantSegments::pinned_or_not(const SegmentNode& node) {
  if (node.pins > 0) {
    totals_.pinned_bytes += node.row->stored_bytes;
  } else {
    totals_.pinned_bytes -= node.row->stored_bytes;
  }
}

TenantSegments::Totals TenantSegments::totals_of(const Digest& model) const {
  const auto of_model = of_models_.find(model);
  return of_model == of_models_.end() ? Totals() : of_model->second;
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
