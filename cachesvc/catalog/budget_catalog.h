// The part of the catalog that holds the defaults and limits that tenants set for their puts.
// Callers include catalog.h, which says what holds for all methods.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/catalog/budgets.h"
#include "precis/messages.h"
#include "precis/status.h"

namespace precis {

class BudgetCatalog {
 public:
  virtual ~BudgetCatalog() = default;

  virtual msg::Budgets budgets(std::string_view tenant, const msg::BudgetScope& scope,
                               const BudgetDefaults& configured) const = 0;
  virtual std::vector<std::string> sessions_with_budgets(std::string_view tenant) const = 0;
  // Both are [blocking] and make a revision that survives a crash, or change nothing: a revision
  // without changes is not stored. Errors as BudgetTable's; kInvalidArgument if a recipe for all
  // models needs a profile; kNotFound without model or profile; kOutOfSpace for too many changes.
  virtual Result<msg::BudgetRevision> set_budget(std::string_view tenant,
                                                 const msg::SetBudget&) = 0;
  virtual Result<msg::BudgetRevision> roll_back_budget(std::string_view tenant,
                                                       const msg::RollBackBudget&) = 0;
  // Removes all that the tenant has set, and its revisions. Returns how many rows that were.
  virtual Result<std::size_t> remove_budgets(std::string_view tenant) = 0;
  virtual msg::BudgetRevisions budget_revisions(std::string_view tenant,
                                                const msg::ListBudgetRevisions&) const = 0;
  virtual Result<msg::BudgetChanges> compare_budgets(std::string_view tenant,
                                                     const msg::CompareBudgets&) const = 0;
};

}  // namespace precis
