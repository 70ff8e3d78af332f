// Budgets by layer and head, as an operator writes them: a profile with a share for each (layer, KV
// head), and the recipe that uses it.
#pragma once

#include <string>
#include <vector>

#include "precis/messages.h"
#include "precis/profile.h"

namespace precis::cli {

struct BudgetTable {
  Profile profile;
  std::string recipe;
  Budget keep;  // the mean of all shares
};

// `layers`: "0-3=0.5,4-31=0.15", must name every layer. `heads`: "12.3=0.6" sets layer 12, KV
// head 3. Shares are in (0, 1]. `recipe`: gives the scores. kInvalidArgument names the part of the
// text that is wrong, or the layers without a share.
Result<BudgetTable> make_budget_table(const msg::ModelRow& model, const std::string& recipe,
                                      const std::string& layers,
                                      const std::vector<std::string>& heads);

}  // namespace precis::cli
