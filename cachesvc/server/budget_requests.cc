#include "cachesvc/server/budget_requests.h"

#include "cachesvc/server/change_text.h"

namespace precis {
namespace {

bool can_trim_to(const msg::SetBudget& request) {
  const std::optional<Budget>& wanted = request.keep ? request.keep : request.limit;
  return wanted && wanted->kind != Budget::Kind::kAll && wanted->kind != Budget::Kind::kQuality;
}

}  // namespace

Status BudgetRequests::check(const msg::BudgetScope& scope) const {
  if (scope.model) PRECIS_TRY(catalog_.model(tenant_, *scope.model).status());
  return scope.session.empty() ? Status() : catalog_.session(tenant_, scope.session).status();
}

Status BudgetRequests::check_applicable(const msg::SetBudget& request) const {
  if (!can_trim_to(request)) {
    return Status::invalid(
        "what is stored can only be trimmed to a keep or a limit that is a ratio, entries or "
        "bytes: set one, or change the budget without apply_to_stored");
  }
  return caller_.parts.applications.check_free(tenant_);
}

Result<std::uint64_t> BudgetRequests::apply(std::string_view request,
                                            const msg::BudgetRevision& revision,
                                            BudgetsToApply budgets, bool dry_run) const {
  const bool is_made = !dry_run && !revision.changes.empty();
  const auto begun =
      caller_.parts.applications.start(caller_.tenant.owner(nullptr), std::move(budgets),
                                       is_made ? revision.number : revision.number - 1, dry_run);
  if (!begun.ok()) {
    return begun.status().with_context(is_made ? "the budgets are changed, but what is stored stays"
                                               : "nothing is changed");
  }
  if (!dry_run) {
    caller_.note({.request = request,
                  .event = "budgets are applied to what is stored",
                  .of = "application " + std::to_string(*begun),
                  .text = "revision " + std::to_string(revision.number)});
  }
  return *begun;
}

msg::BudgetValues BudgetRequests::values_of(const msg::BudgetScope& scope) const {
  const auto budgets = catalog_.budgets(tenant_, scope, caller_.parts.configured);
  const msg::BudgetRow& own = budgets.layers.back();  // the narrowest: the scope's own
  return {own.recipe, own.keep, own.limit};
}

std::string BudgetRequests::budget_text(const msg::BudgetScope& scope) const {
  const msg::BudgetValues own = values_of(scope);
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
  // A dry run of what no trim can take counts nothing: its other effects are told all the same.
  const bool applies = request.apply_to_stored && (!request.dry_run || can_trim_to(request));
  if (applies) PRECIS_CO_TRY(check_applicable(request));
  const std::string was = budget_text(request.scope);
  PRECIS_CO_ASSIGN(const msg::BudgetRevision revision,
                   co_await caller_.stored([&] { return catalog_.set_budget(tenant_, request); }));
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"SetBudget", "budget set", scope_text(request.scope), change_text(request), was,
                  budget_text(request.scope)});
  }
  std::uint64_t application = 0;
  if (applies) {
    BudgetsToApply budgets{revision.changes, false, /*to_limit=*/!request.keep};
    if (budgets.changes.empty()) {  // the same budget again: for what an earlier application left
      const msg::BudgetValues own = values_of(request.scope);
      budgets.changes.push_back({request.scope, own, own});
    }
    PRECIS_CO_ASSIGN(application,
                     apply("SetBudget", revision, std::move(budgets), request.dry_run));
  }
  msg::Budgets told = catalog_.budgets(tenant_, request.scope, caller_.parts.configured);
  told.application = application;
  co_return msg::ReplyBody(std::move(told));
}

Task<Answer> BudgetRequests::on(msg::ListBudgetRevisions request) {
  co_return msg::ReplyBody(catalog_.budget_revisions(tenant_, request));
}

Task<Answer> BudgetRequests::on(msg::RollBackBudget request) {
  if (request.apply_to_stored) {
    PRECIS_CO_TRY(caller_.parts.applications.check_free(tenant_));
  }
  PRECIS_CO_ASSIGN(msg::BudgetRevision revision, co_await caller_.stored([&] {
    return catalog_.roll_back_budget(tenant_, request);
  }));
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"RollBackBudget", "budgets rolled back",
                  "revision " + std::to_string(request.revision), "", "",
                  "revision " + std::to_string(revision.number)});
  }
  if (request.apply_to_stored && !revision.changes.empty()) {
    PRECIS_CO_ASSIGN(revision.application,
                     apply("RollBackBudget", revision,
                           {revision.changes, /*smaller_only=*/true, false}, request.dry_run));
  }
  co_return msg::ReplyBody(std::move(revision));
}

Task<Answer> BudgetRequests::on(msg::ShowApplication) {
  co_return msg::ReplyBody(caller_.parts.applications.state(tenant_));
}

Task<Answer> BudgetRequests::on(msg::CancelApplication request) {
  const bool ran = caller_.parts.applications.state(tenant_).ended_unix_ms == 0;
  PRECIS_CO_ASSIGN(auto state, caller_.parts.applications.cancel(tenant_, request.number));
  if (ran && state.number > 0) {
    caller_.note({.request = "CancelApplication",
                  .event = "application of budgets canceled",
                  .of = "application " + std::to_string(state.number)});
  }
  co_return msg::ReplyBody(std::move(state));
}

}  // namespace precis
