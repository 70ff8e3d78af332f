// The application of a change of budgets to what is stored. The service does it
// (msg::SetBudget::apply_to_stored), and this waits for it and shows its progress.
#pragma once

#include <cstdint>
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
// Waits for the end of the application `number`, which a change has just begun. kNotFound if
// another one began since, or the service was restarted.
Result<AppliedBudgets> wait_for_application(Client& client, std::uint64_t number);

// Prints the application that runs, or else the one that ran last. `cancel`: cancels it first.
Status show_application(Context context, bool cancel);

// "score mass kept: 91.2% on average, 80.1% in layer 3", which is the lowest. `layers`: the share
// of each, at least one.
std::string kept_mass_words(const std::vector<double>& layers);
// The same as a line; empty: no text.
std::string kept_mass_text(const std::vector<double>& layers);

}  // namespace precis::cli
