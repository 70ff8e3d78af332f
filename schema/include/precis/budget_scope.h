// Budget scopes in order: the tenant's global scope, its models, its sessions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "precis/messages.h"

namespace precis {

inline constexpr std::size_t kShownSessionBudgetsMax = 100;  // in one list of budgets

using ScopeKey = std::pair<std::string, std::optional<Digest>>;  // session, model

inline ScopeKey key_of(const msg::BudgetScope& scope) { return {scope.session, scope.model}; }
inline msg::BudgetScope scope_of(const ScopeKey& key) { return {key.second, key.first}; }

}  // namespace precis
