// precisctl budget: defaults and limits of puts, their revisions, and what a change would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/commands.h"

namespace precis::cli {

struct BudgetChange {
  std::string session;  // the change is for this session; empty: for a model or for all
  std::optional<std::string> recipe, keep, limit;
  bool unset = false;
  // The parts of a table (msg::SetBudget), or the file that has them; empty for none.
  std::string layers, table;
  std::vector<std::string> heads;
  std::string user, comment;
  std::optional<std::uint64_t> if_revision;
  bool dry_run = false;          // changes nothing, and tells what the change would do
  bool apply_to_stored = false;  // trims the stored segments that it concerns to the new budget
};

// `session`: what its puts get; then there is no model. With `revision`: what was set after that
// revision. `png`: a file for the map of the model's newest segment; empty for none.
Status show_budget(Context context, const std::string& model, const std::string& session,
                   std::optional<std::uint64_t> revision, const std::string& png);
Status set_budget(Context context, const std::string& model, const BudgetChange& change);
Status list_revisions(Context context, std::uint32_t limit);
// The scopes that two revisions set differently. 0: nothing is set; none: the newest revision.
Status diff_revisions(Context context, std::uint64_t from, std::optional<std::uint64_t> to);
Status roll_back_budget(Context context, std::uint64_t revision, const BudgetChange& how);

}  // namespace precis::cli
