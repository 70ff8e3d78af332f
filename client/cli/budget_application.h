// The application of a change of budgets to what is stored. The service does it
// (msg::SetBudget::apply_to_stored), and this waits for it and shows its progress.
#pragma once

#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/json.h"

namespace precis::cli {

struct AppliedBudgets {
  Json json;
  std::string text;
  Status status;  // kCanceled after Ctrl-C, which cancels it; else the error that ended it early
};
// Waits for the end of the application that a change has just begun. kNotFound if another one, or
// none, is there.
Result<AppliedBudgets> wait_for_application(Client& client, bool dry_run);

// Prints the application that runs, or else the one that ran last. `cancel`: cancels it first.
Status show_application(Context context, bool cancel);

// "score mass kept: 91.2% on average, 80.1% in layer 3", as a line. `layers`: the share of each;
// empty: no text.
std::string kept_mass_text(const std::vector<double>& layers);

}  // namespace precis::cli
