// Computes, for the dry run of a change of budgets, what the next put would keep if it was like a
// stored segment (msg::NextPut). The scores are those of the segment.
#pragma once

#include <optional>

#include "cachesvc/pipeline/head_table.h"
#include "cachesvc/server/caller.h"

namespace precis {

// A change that is not made.
struct TriedBudget {
  msg::BudgetScope scope;
  msg::BudgetValues own;           // what the scope would set
  std::optional<HeadTable> table;  // its recipe is set instead of own.recipe
};

// Returns no errors: the note says what a segment does not show, or that none could be read.
// `caller` must outlive the task.
Task<msg::NextPut> tell_next_put(const Caller& caller, TriedBudget tried);

}  // namespace precis
