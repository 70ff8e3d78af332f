// Requests about the budgets that are set for a tenant and its models.
#pragma once

#include <optional>
#include <string>

#include "cachesvc/pipeline/head_table.h"
#include "cachesvc/server/caller.h"

namespace precis {

class BudgetRequests {
 public:
  explicit BudgetRequests(const Caller& caller)
      : caller_(caller), catalog_(caller.parts.catalog), tenant_(caller.tenant.name) {}

  Task<Answer> on(msg::ShowBudget request);
  Task<Answer> on(msg::SetBudget request);
  Task<Answer> on(msg::ListBudgetRevisions request);
  Task<Answer> on(msg::CompareBudgets request);
  Task<Answer> on(msg::RollBackBudget request);
  Task<Answer> on(msg::ShowApplication request);
  Task<Answer> on(msg::CancelApplication request);

 private:
  // OK unless the scope names a model that is not registered, or a session that does not exist.
  Status check(const msg::BudgetScope& scope) const;
  // OK if segments can be trimmed to what the request sets, and no other change is being applied.
  Status check_applicable(const msg::SetBudget& request) const;
  // The model of a scope, or of its session's turns; none if it is of all models.
  std::optional<Digest> model_of(const msg::BudgetScope& scope) const;
  // OK unless puts of the scope's model would then be at a loss, and the recipe has no measured
  // losses.
  Status check_loss(const msg::SetBudget& request) const;
  // Reads the request's table, for the model of its scope or of its session's turns. Sets the
  // request's keep, unless it has one. It may take long.
  Result<HeadTable> read_table(msg::SetBudget& request) const;
  // [blocking] Makes the change unless it is a dry run. `profile` receives the table's profile, if
  // that was added. A refused change leaves no profile, unless another change overtook it.
  Result<msg::BudgetRevision> set(msg::SetBudget& request, const std::optional<HeadTable>& table,
                                  std::optional<msg::ProfileRow>& profile) const;
  // Applies a revision's changes to stored segments, at all nodes of a cluster. Unless it is a dry
  // run, the changes are made already. `request`: the name of the request, a literal. Returns the
  // number of the application.
  Task<Result<std::uint64_t>> apply(std::string_view request, const msg::BudgetRevision& revision,
                                    const BudgetsToApply& budgets, bool dry_run) const;
  msg::BudgetValues values_of(const msg::BudgetScope& scope) const;
  // The recipe and keep that are set for this scope itself.
  std::string budget_text(const msg::BudgetScope& scope) const;

  const Caller& caller_;
  Catalog& catalog_;
  const std::string& tenant_;
};

}  // namespace precis
