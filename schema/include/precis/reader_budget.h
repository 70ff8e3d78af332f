// Budgets of defaults, budgets under a limit, and budgets of readers of stored segments.
#pragma once

#include <cstdint>
#include <optional>

#include "precis/recipe.h"

namespace precis {

// Returns the recipe of a put that names none, from the default `recipe`: a put of all entries
// stores raw rows, unless the limit is lower.
Recipe default_for(const Recipe& recipe, const Budget& asked, const std::optional<Budget>& limit);

// Returns the recipe with rows that suit the model and the budget instead of kInt8. kK6V4, if
// `asked` is a share of the bytes or a loss: at equal bytes, it loses less, or as much within the
// error (docs/notes/rows.md). Else kRaw, if the model's rows take no more bytes as they are
// pushed. Else, or if the recipe has another encoding, `recipe`. kK6V4 is not taken if the share
// holds every entry without it, or if the model can't have such rows. `num_tokens`: of the segment;
// in layers with a window, a long one has fewer entries than tokens.
Recipe with_fitting_rows(const Recipe& recipe, const ModelSpec& model, const Budget& asked,
                         std::uint32_t num_tokens);

// Returns the recipe with a `min_entries` that leaves puts within the limit.
Result<Recipe> with_floor_within(const Recipe& recipe, const ModelSpec& model,
                                 std::uint32_t num_tokens, std::uint32_t begin,
                                 const Budget& limit);

// Returns `asked`, or the limit if `asked` has more entries. Errors as budget_entries().
Result<Budget> within_limit(const Recipe& recipe, const ModelSpec& model, std::uint32_t num_tokens,
                            std::uint32_t begin, const Budget& asked, const Budget& limit);

// As budget_entries(), for a reader of a stored segment. `Row`: SegmentRow or SegmentInfo, which
// stores `stored` entries. For a part of a split segment, `budget` is that of the whole segment,
// and the part gets its share.
template <typename Row>
Result<std::uint64_t> asked_entries(const Row& row, std::uint64_t stored, const Recipe& recipe,
                                    const ModelSpec& model, const Budget& budget) {
  if (budget.kind == Budget::Kind::kAll) return stored;
  const bool is_part = row.whole_entries != 0;
  const std::uint32_t begin = is_part ? row.whole_begin : row.begin;
  const std::uint32_t end = is_part ? row.whole_end : row.end;
  if (begin >= end) return Status::invalid("the whole segment of a part has no tokens");
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, end - begin, budget, begin));
  return is_part ? entries * stored / row.whole_entries : entries;
}

}  // namespace precis
