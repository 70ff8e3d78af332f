// The stored segments that a change of budgets concerns.
#pragma once

#include <string>
#include <vector>

#include "client/cli/bulk.h"

namespace precis::cli {

// The names of sessions that set a budget of their own, as far as the service lists them.
Result<std::vector<std::string>> sessions_with_budgets(Client& client);

// Segments of a session that sets a budget of its own are in the parts of that session's budget,
// unless other paths continue them: those are their model's.
struct ConcernedSegments {
  std::vector<TrimPart> parts;
  // The names of models, and sessions, whose new budget is a quality target, which no trim can
  // take.
  std::vector<std::string> quality;
  // The names of models, and sessions, that the change does not reach, because they set a keep (or
  // limit) of their own.
  std::vector<std::string> apart;
};

// The segments of which a put would get a smaller budget after the changes, each in the part of
// that budget. `changes` are not made yet.
Result<ConcernedSegments> concerned_by(Client& client,
                                       const std::vector<msg::BudgetChange>& changes);
// The segments of which a put would get the budget or limit of this change, each in the part of
// what it would get: the limits of all scopes count. The change may be made already.
Result<ConcernedSegments> concerned_by(Client& client, const msg::SetBudget& change);

}  // namespace precis::cli
