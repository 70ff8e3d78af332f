// The revisions of the budgets, for people and for scripts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/json.h"
#include "precis/client.h"

namespace precis::cli {

// Everything that is set after a revision, as changes of nothing. kNotFound if that revision is not
// there, or not all later ones are kept.
Result<std::vector<msg::BudgetChange>> set_after(Client& client, std::uint64_t revision);

// `columns`: as in render.h.
std::string changes_text(Client& client, const std::vector<msg::BudgetChange>& changes,
                         std::size_t columns);
Json changes_json(Client& client, const std::vector<msg::BudgetChange>& changes);

}  // namespace precis::cli
