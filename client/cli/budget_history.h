// The revisions of the budgets, for people and for scripts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/cli/json.h"
#include "precis/client.h"

namespace precis::cli {

// `columns`: as in render.h.
std::string changes_text(Client& client, const std::vector<msg::BudgetChange>& changes,
                         std::size_t columns);
Json changes_json(Client& client, const std::vector<msg::BudgetChange>& changes);

}  // namespace precis::cli
