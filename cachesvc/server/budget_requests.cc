#include "cachesvc/server/budget_requests.h"

#include <utility>

#include "cachesvc/catalog/budgets.h"
#include "cachesvc/pipeline/default_recipe.h"
#include "cachesvc/server/agreed_applications.h"
#include "cachesvc/server/change_text.h"
#include "cachesvc/server/next_put.h"

namespace precis {
namespace {

constexpr double kTableBytesPerMs = 32 << 10;  // that parsing takes, about

bool can_trim_to(const msg::SetBudget& request) {
  const std::optional<Budget>& wanted = request.keep ? request.keep : request.limit;
  return wanted && wanted->kind != Budget::Kind::kAll && wanted->kind != Budget::Kind::kLoss;
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

std::optional<Digest> BudgetRequests::model_of(const msg::BudgetScope& scope) const {
  if (scope.session.empty()) return scope.model;
  const auto session = catalog_.session(tenant_, scope.session);
  if (!session.ok()) return std::nullopt;
  const auto tip = catalog_.stored_segment(tenant_, session->tip);
  return tip.ok() ? std::optional(tip->row->model) : std::nullopt;
}

Status BudgetRequests::check_loss(const msg::SetBudget& request) const {
  const bool sets_loss = request.keep && request.keep->kind == Budget::Kind::kLoss;
  if (sets_loss && !request.table.empty()) {
    return Status::invalid(
        "a table takes no loss; give a ratio, entries, bytes or a share of bytes");
  }
  const bool sets_recipe = request.recipe && !request.recipe->empty();
  const auto model = model_of(request.scope);
  if (!model || !request.table.empty() || (!sets_loss && !sets_recipe)) return {};
  PRECIS_ASSIGN(const ModelSpec spec, catalog_.model(tenant_, *model));
  msg::Budgets budgets = catalog_.budgets(tenant_, request.scope, caller_.parts.configured);
  msg::BudgetRow& own = budgets.layers.back();
  if (request.recipe) own.recipe = *request.recipe;
  if (request.keep) own.keep = *request.keep == Budget::all() ? std::nullopt : request.keep;
  budgets.effective = {};
  settle(budgets);
  const Budget keep = budgets.effective.keep.value_or(Budget::all());
  if (keep.kind != Budget::Kind::kLoss) return {};
  PRECIS_ASSIGN(Recipe recipe, parse_recipe(budgets.effective.recipe));
  recipe = default_recipe(recipe, budgets, spec, keep, 1);
  return budget_of_put(catalog_, tenant_, *model, recipe, keep, 1).status();
}

Task<Result<std::uint64_t>> BudgetRequests::apply(std::string_view request,
                                                  const msg::BudgetRevision& revision,
                                                  const BudgetsToApply& budgets,
                                                  bool dry_run) const {
  const bool is_made = !dry_run && !revision.changes.empty();
  const std::uint64_t newest = is_made ? revision.number : revision.number - 1;
  AgreedApplications* const agreed = caller_.parts.agreed_applications;
  Result<std::uint64_t> begun = std::uint64_t{0};
  if (agreed != nullptr) {
    begun =
        co_await caller_.changed([&] { return agreed->begin(tenant_, budgets, newest, dry_run); });
  } else {
    begun =
        caller_.parts.applications.start(caller_.tenant.owner(nullptr), budgets, newest, dry_run);
  }
  if (!begun.ok()) {
    const bool is_unknown =  // the row may be in etcd
        !dry_run && agreed != nullptr && begun.status().code() == StatusCode::kUnavailable;
    co_return begun.status().with_context(
        is_unknown ? std::string(is_made ? "the budgets are changed, and " : "") +
                         "it is not known whether what is stored is trimmed: ask precisctl budget "
                         "application"
        : is_made ? "the budgets are changed, but what is stored stays"
                  : "nothing is changed");
  }
  if (!dry_run) {
    caller_.note({.request = request,
                  .event = "budgets are applied to what is stored",
                  .of = "application " + std::to_string(*begun),
                  .text = "revision " + std::to_string(revision.number)});
  }
  co_return *begun;
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

Result<HeadTable> BudgetRequests::read_table(msg::SetBudget& request) const {
  const std::optional<Digest> model = model_of(request.scope);
  if (!request.scope.session.empty()) {
    if (!model) {
      return Status::invalid("a table of layers and heads is for one model, and session '" +
                             request.scope.session + "' has no stored turn that says its model");
    }
  }
  if (!model) {
    return Status::invalid("a table of layers and heads is for one model: give the model");
  }
  PRECIS_ASSIGN(const ModelSpec spec, catalog_.model(tenant_, *model));
  const std::string recipe =
      request.recipe && !request.recipe->empty()
          ? *request.recipe
          : catalog_.budgets(tenant_, request.scope, caller_.parts.configured).effective.recipe;
  PRECIS_ASSIGN(HeadTable table, parse_head_table(request.table, *model, spec, recipe));
  if (!request.keep) request.keep = table.keep;
  return table;
}

Result<msg::BudgetRevision> BudgetRequests::set(msg::SetBudget& request,
                                                const std::optional<HeadTable>& table,
                                                std::optional<msg::ProfileRow>& profile) const {
  if (!table) return catalog_.set_budget(tenant_, request);
  msg::SetBudget tried = request;  // its recipe is refused until its profile exists
  tried.recipe.reset();
  tried.dry_run = true;
  PRECIS_ASSIGN(msg::BudgetRevision revision, catalog_.set_budget(tenant_, tried));
  PRECIS_TRY(catalog_.check_profile(tenant_, table->profile));
  if (request.dry_run) return revision;
  const Digest& model = table->profile.model;
  const auto known = digest_of(catalog_.profiles(tenant_, model), model, table->profile.name);
  if (known != profile_digest(table->profile).hex()) {  // the name may be of a user's profile
    PRECIS_ASSIGN(profile, catalog_.add_profile(tenant_, profile_json(table->profile)));
  }
  request.recipe = canonical_recipe(table->recipe);
  return catalog_.set_budget(tenant_, request);
}

Task<Answer> BudgetRequests::on(msg::SetBudget request) {
  PRECIS_CO_TRY(check(request.scope));
  PRECIS_CO_TRY(check_loss(request));
  std::optional<HeadTable> table;
  if (!request.table.empty()) {
    const double cost = 1 + static_cast<double>(request.table.size()) / kTableBytesPerMs;
    PRECIS_CO_ASSIGN(table, co_await caller_.listed([&] { return read_table(request); }, cost));
  }
  // A dry run of a budget to which nothing can be trimmed counts nothing, but reports its other
  // effects.
  const bool applies = request.apply_to_stored && (!request.dry_run || can_trim_to(request));
  if (applies) PRECIS_CO_TRY(check_applicable(request));
  const std::string was = budget_text(request.scope);
  std::optional<msg::ProfileRow> profile;
  const auto made = co_await caller_.changed([&] { return set(request, table, profile); });
  if (profile) {
    caller_.note({"AddProfile", "profile added", profile->name,
                  profile->kind + " for model " + profile->model.hex(), std::nullopt,
                  profile->digest.hex()});
  }
  PRECIS_CO_ASSIGN(const msg::BudgetRevision revision, made);
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"SetBudget", "budget set", scope_text(request.scope), change_text(request), was,
                  budget_text(request.scope)});
  }
  const msg::BudgetValues own =
      revision.changes.empty() ? values_of(request.scope) : revision.changes.front().after;
  std::uint64_t application = 0;
  if (applies) {
    BudgetsToApply budgets{revision.changes, false, /*to_limit=*/!request.keep};
    if (budgets.changes.empty()) {  // the same budget again, for segments that are not trimmed yet
      budgets.changes.push_back({request.scope, own, own});
    }
    PRECIS_CO_ASSIGN(application, co_await apply("SetBudget", revision, budgets, request.dry_run));
  }
  msg::Budgets told = catalog_.budgets(tenant_, request.scope, caller_.parts.configured);
  told.application = application;
  if (request.dry_run) {
    TriedBudget tried{request.scope, own, std::move(table)};
    told.next_put = co_await tell_next_put(caller_, std::move(tried));
  }
  co_return msg::ReplyBody(std::move(told));
}

Task<Answer> BudgetRequests::on(msg::ListBudgetRevisions request) {
  co_return msg::ReplyBody(catalog_.budget_revisions(tenant_, request));
}

Task<Answer> BudgetRequests::on(msg::CompareBudgets request) {
  co_return answer(
      co_await caller_.listed([&] { return catalog_.compare_budgets(tenant_, request); }));
}

Task<Answer> BudgetRequests::on(msg::RollBackBudget request) {
  if (request.apply_to_stored) {
    PRECIS_CO_TRY(caller_.parts.applications.check_free(tenant_));
  }
  PRECIS_CO_ASSIGN(msg::BudgetRevision revision, co_await caller_.changed([&] {
    return catalog_.roll_back_budget(tenant_, request);
  }));
  if (!request.dry_run && !revision.changes.empty()) {
    caller_.note({"RollBackBudget", "budgets rolled back",
                  "revision " + std::to_string(request.revision), "", "",
                  "revision " + std::to_string(revision.number)});
  }
  if (request.apply_to_stored && !revision.changes.empty()) {
    BudgetsToApply budgets{revision.changes};
    budgets.smaller_only = true;
    PRECIS_CO_ASSIGN(revision.application,
                     co_await apply("RollBackBudget", revision, budgets, request.dry_run));
  }
  co_return msg::ReplyBody(std::move(revision));
}

Task<Answer> BudgetRequests::on(msg::ShowApplication) {
  co_return msg::ReplyBody(caller_.parts.applications.state(tenant_));
}

Task<Answer> BudgetRequests::on(msg::CancelApplication request) {
  BudgetApplications& applications = caller_.parts.applications;
  const bool ran = applications.state(tenant_).ended_unix_ms == 0;
  AgreedApplications* const agreed = caller_.parts.agreed_applications;
  if (agreed != nullptr) {
    PRECIS_CO_TRY(co_await caller_.changed([&] { return agreed->end(tenant_, request.number); }));
  } else {
    PRECIS_CO_TRY(applications.cancel(tenant_, request.number).status());
  }
  msg::BudgetApplication state = applications.state(tenant_);
  if (ran && state.number > 0) {
    caller_.note({.request = "CancelApplication",
                  .event = "application of budgets canceled",
                  .of = "application " + std::to_string(state.number)});
  }
  co_return msg::ReplyBody(std::move(state));
}

}  // namespace precis
