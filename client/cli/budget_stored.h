// The stored segments that a change of budgets concerns.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bulk.h"

namespace precis::cli {

struct ConcernedSegments {
  std::vector<TrimPart> parts;
  // The names of models whose new budget is a quality target, which no trim can take.
  std::vector<std::string> quality;
};

// The segments of which a put would get a smaller budget after the changes, each in the part of
// that budget. `changes` are not made yet.
Result<ConcernedSegments> concerned_by(Client& client,
                                       const std::vector<msg::BudgetChange>& changes);

}  // namespace precis::cli
