// Tells in a dry run of a change of the budgets what the next put would keep if it was like a
// segment that is stored (msg::NextPut), by the scores that this segment stores.
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

// There are no errors: the note says what a segment can't tell, also if none could be read.
// `caller` must outlive the task.
Task<msg::NextPut> tell_next_put(const Caller& caller, TriedBudget tried);

}  // namespace precis
