// Budgets that meet something else than a whole put: a limit, or what a segment stores.
#pragma once

#include <cstdint>

#include "precis/recipe.h"

namespace precis {

// Returns `asked`, or the limit if `asked` has more entries. A quality target has its cap lowered
// to a limit that is a ratio. Errors as budget_entries().
Result<Budget> within_limit(const Recipe& recipe, const ModelSpec& model, std::uint32_t num_tokens,
                            std::uint32_t begin, const Budget& asked, const Budget& limit);

// As budget_entries(), for a reader of a stored segment. `Row`: SegmentRow or SegmentInfo, which
// stores `stored` entries. A part of a split segment has its own share of its budget's entries, so
// a reader's budget is that share of what it gives other segments. kInvalidArgument for kQuality.
template <typename Row>
Result<std::uint64_t> asked_entries(const Row& row, std::uint64_t stored, const Recipe& recipe,
                                    const ModelSpec& model, const Budget& budget) {
  if (budget.kind == Budget::Kind::kAll) return stored;
  if (budget.kind == Budget::Kind::kQuality) {
    return Status::invalid("a quality target is for puts; read at a ratio, entries or bytes");
  }
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, row.end - row.begin, budget, row.begin));
  return row.budget_entries == 0 ? entries : entries * stored / row.budget_entries;
}

}  // namespace precis
