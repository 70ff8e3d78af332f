#include "cachesvc/server/budget_requests.h"

#include "cachesvc/server/change_text.h"

namespace precis {

Status BudgetRequests::check(const msg::BudgetScope& scope) const {
  if (scope.model) PRECIS_TRY(catalog_.model(tenant_, *scope.model).status());
  return scope.session.empty() ? Status() : catalog_.session(tenant_, scope.session).status();
}

std::string BudgetRequests::budget_text(const msg::BudgetScope& scope) const {
  const auto budgets = catalog_.budgets(tenant_, scope, caller_.parts.configured);
  const msg::BudgetRow& own = budgets.layers.back();  // the narrowest: the scope's own
  return "recipe " + (own.recipe.empty() ? "unset" : own.recipe) + ", keep " +
         (own.keep ? own.keep->to_string() : "unset") + ", limit " +
         (own.limit ? own.limit->to_string() : "unset");
}

Task<Answer> BudgetRequests::on(msg::ShowBudget request) {
  PRECIS_CO_TRY(check(request.scope));
  co_return msg::ReplyBody(catalog_.budgets(tenant_, request.scope, caller_.parts.configured));
}

Task<Answer> BudgetRequests::on(msg::SetBudget request) {
  PRECIS_CO_TRY(check(request.scope));
  const std::string was = budget_text(request.scope);
  PRECIS_CO_ASSIGN(const msg::BudgetRevision revision,
                   co_await caller_.stored([&] { return catalog_.set_budget(tenant_, request); }));
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"SetBudget", "budget set", scope_text(request.scope), change_text(request), was,
                  budget_text(request.scope)});
  }
  co_return msg::ReplyBody(catalog_.budgets(tenant_, request.scope, caller_.parts.configured));
}

Task<Answer> BudgetRequests::on(msg::ListBudgetRevisions request) {
  co_return msg::ReplyBody(catalog_.budget_revisions(tenant_, request));
}

Task<Answer> BudgetRequests::on(msg::RollBackBudget request) {
  PRECIS_CO_ASSIGN(msg::BudgetRevision revision, co_await caller_.stored([&] {
    return catalog_.roll_back_budget(tenant_, request);
  }));
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"RollBackBudget", "budgets rolled back",
                  "revision " + std::to_string(request.revision), "", "",
                  "revision " + std::to_string(revision.number)});
  }
  co_return msg::ReplyBody(std::move(revision));
}

}  // namespace precis
