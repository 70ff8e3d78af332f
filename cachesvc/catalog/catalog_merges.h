// Consolidation: segments of a chain become one. Private to this folder.
//
// A run of segments, each the only child of the one before, may become one if
// - no session has its tip at any but the last;
// - all are in service and on the disk, and none is a part of a split segment;
// - all have the same model, adapter, recipe and budget, and all were trimmed or none. The budget
//   is a ratio or all, and their tokens are past the recipe's min_entries. Then a budget in a ratio
//   is the sum of those of the segments;
// - all are as faithful (faithful.h) as the first;
// - if they were trimmed to different budgets, they and all that follows are faithful at every
//   budget: what follows was computed over no share of them that the merge would change.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

class CatalogMerges : public virtual CatalogState {
 public:
  std::vector<Row> mergeable(std::string_view tenant, const SegmentId& tip) override;
  Result<bool> merge(std::span<const Row> run, const Part& into) override;

 private:
  // Callers hold changes_ for the functions below.
  bool has_session(const SegmentNode& node) const;
  bool may_merge(const SegmentNode& node) const;
  // Whether `node` may be in a run that ends in `last`. `mixes`: even if they were trimmed to
  // different budgets.
  bool may_join(const SegmentNode& node, const SegmentNode& last, bool mixes) const;
  // Whether the node and all its descendants are faithful at every budget. False if there are too
  // many to check.
  bool is_faithful_from(const SegmentNode& node) const;
  Status store_merged(std::span<const SegmentNode* const> run, const Part& into);
};

}  // namespace precis
