#include "client/cli/budget_stored.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "client/cli/segment_filter.h"
#include "precis/budget_scope.h"
#include "precis/reader_budget.h"

namespace precis::cli {
namespace {

constexpr std::string_view kOfSession = "session ";

struct InForce {
  std::optional<Budget> keep, limit;
  bool operator==(const InForce&) const = default;
};

InForce in_force(const std::vector<msg::BudgetRow>& layers) {
  InForce values;
  for (const msg::BudgetRow& layer : layers) {
    if (layer.keep) values.keep = layer.keep;
    if (layer.limit) values.limit = layer.limit;
  }
  return values;
}

// The puts of a model, or those that name a session.
struct Puts {
  msg::BudgetScope scope;
  std::string name;
  ModelSpec model;
  std::vector<msg::BudgetRow> layers;
  SegmentFilter filter;

  bool concerns(const msg::BudgetScope& changed) const {
    return (changed.session.empty() || changed.session == scope.session) &&
           (!changed.model || changed.model == scope.model);
  }
  // The layers end with the tenant's own, the model's own and, if there is one, the session's own.
  InForce after(const std::vector<msg::BudgetChange>& changes) const {
    std::vector<msg::BudgetRow> now = layers;
    const std::size_t of_session = scope.session.empty() ? 0 : 1;
    for (const msg::BudgetChange& change : changes) {
      const msg::BudgetScope& changed = change.scope;
      if (!concerns(changed)) continue;
      const std::size_t from_end =
          !changed.session.empty() ? 1 : of_session + (changed.model ? 1 : 2);
      msg::BudgetRow& layer = now[now.size() - from_end];
      layer.keep = change.after.keep;
      layer.limit = change.after.limit;
    }
    return in_force(now);
  }
};

// None if the session is gone or has no turn.
Result<std::optional<Puts>> puts_of_session(Client& client, const std::string& name,
                                            const std::vector<msg::ModelRow>& models) {
  const auto session = client.session(name);
  if (session.status().code() == StatusCode::kNotFound) return std::optional<Puts>();
  PRECIS_TRY(session.status());
  if (session->tip.is_null()) return std::optional<Puts>();
  PRECIS_ASSIGN(const msg::SegmentInfo tip, client.segment(session->tip));
  const auto model = std::ranges::find(models, tip.model, &msg::ModelRow::fingerprint);
  if (model == models.end()) return std::optional<Puts>();
  PRECIS_ASSIGN(msg::Budgets budgets, client.budgets(tip.model, name));
  Puts puts{{tip.model, name},
            std::string(kOfSession) + name,
            model->model,
            std::move(budgets.layers),
            {}};
  puts.filter.session = name;
  return std::optional(std::move(puts));
}

Result<std::vector<Puts>> all_puts(Client& client, std::vector<std::string> sessions) {
  PRECIS_ASSIGN(const auto models, client.models());
  std::vector<Puts> all;
  for (const msg::ModelRow& row : models) {
    PRECIS_ASSIGN(msg::Budgets budgets, client.budgets(row.fingerprint));
    Puts& puts = all.emplace_back(
        Puts{{row.fingerprint, {}}, row.model.name, row.model, std::move(budgets.layers), {}});
    puts.filter.model = row.fingerprint.hex();
  }
  PRECIS_ASSIGN(const auto others, sessions_with_budgets(client));
  sessions.insert(sessions.end(), others.begin(), others.end());
  std::ranges::sort(sessions);
  const auto twice = std::ranges::unique(sessions);
  sessions.erase(twice.begin(), twice.end());
  for (const std::string& name : sessions) {
    PRECIS_ASSIGN(auto puts, puts_of_session(client, name, models));
    if (puts) all.push_back(std::move(*puts));
  }
  return all;
}

// The session whose budget a segment has; none for a segment that is not here.
using Owners = std::map<SegmentId, std::string>;

Result<Owners> owners_of(Client& client, const std::vector<Puts>& all) {
  Owners owners;
  for (const Puts& puts : all) {
    if (puts.scope.session.empty()) continue;
    PRECIS_TRY(each_segment(client, puts.filter, [&](const msg::SegmentInfo& row) {
      if (row.children <= 1) owners.try_emplace(row.id, puts.scope.session);
      return true;
    }));
  }
  return owners;
}

Result<Budget> budget_of(const msg::SegmentInfo& row, const ModelSpec& model,
                         const InForce& values) {
  if (!values.limit) return *values.keep;
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(row.recipe));
  return within_limit(recipe, model, row.end - row.begin, row.begin, *values.keep, *values.limit);
}

// Whether the budget of a put of this segment gets smaller. One that can't be compared counts as
// larger before.
Result<bool> gets_smaller(const msg::SegmentInfo& row, const ModelSpec& model,
                          const InForce& before, const Budget& keep) {
  if (!before.keep || before.keep->kind == Budget::Kind::kQuality) return true;
  PRECIS_ASSIGN(const Budget was, budget_of(row, model, before));
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(row.recipe));
  const std::uint32_t tokens = row.end - row.begin;
  PRECIS_ASSIGN(const auto entries, budget_entries(recipe, model, tokens, keep, row.begin));
  PRECIS_ASSIGN(const auto entries_before, budget_entries(recipe, model, tokens, was, row.begin));
  return entries < entries_before;
}

Chosen& part_of(std::vector<TrimPart>& parts, const Budget& keep) {
  const auto known = std::ranges::find(parts, keep, &TrimPart::keep);
  if (known != parts.end()) return known->chosen;
  return parts.emplace_back(TrimPart{{}, keep}).chosen;
}

// Adds the segments of these puts, in the parts of what they get by `after`. `before`: only those
// that get less than by these.
Status add_segments(Client& client, const Puts& puts, const Owners& owners, const InForce& after,
                    const std::optional<InForce>& before, std::vector<TrimPart>& parts) {
  Status wrong;
  PRECIS_TRY(each_segment(client, puts.filter, [&](const msg::SegmentInfo& row) {
    const auto owner = owners.find(row.id);
    if ((owner == owners.end() ? "" : owner->second) != puts.scope.session) return true;
    const auto keep = budget_of(row, puts.model, after);
    wrong = keep.status();
    if (!wrong.ok()) return false;
    if (before) {
      const auto is_smaller = gets_smaller(row, puts.model, *before, *keep);
      wrong = is_smaller.status();
      if (!wrong.ok()) return false;
      if (!*is_smaller) return true;
    }
    Chosen& chosen = part_of(parts, *keep);
    chosen.more = chosen.segments.size() == kChosenMax;
    if (chosen.more) return false;
    chosen.segments.push_back(chosen_of(row));
    chosen.stored_bytes += row.stored_bytes;
    return true;
  }));
  return wrong;
}

}  // namespace

Result<std::vector<std::string>> sessions_with_budgets(Client& client) {
  PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets({}));
  if (budgets.sessions.size() >= kShownSessionBudgetsMax) {
    return Status::unsupported(
        "so many sessions have a budget of their own that not all are listed, and nobody can tell "
        "which stored segments the change concerns; trim them by `precisctl prefix trim`");
  }
  std::vector<std::string> names;
  for (const msg::BudgetRow& row : budgets.sessions) {
    if (row.scope.starts_with(kOfSession)) names.push_back(row.scope.substr(kOfSession.size()));
  }
  return names;
}

Result<ConcernedSegments> concerned_by(Client& client,
                                       const std::vector<msg::BudgetChange>& changes) {
  std::vector<std::string> sessions;
  for (const msg::BudgetChange& change : changes) {
    if (!change.scope.session.empty()) sessions.push_back(change.scope.session);
  }
  PRECIS_ASSIGN(const auto all, all_puts(client, std::move(sessions)));
  PRECIS_ASSIGN(const Owners owners, owners_of(client, all));
  ConcernedSegments concerned;
  for (const Puts& puts : all) {
    const InForce before = in_force(puts.layers), after = puts.after(changes);
    if (after == before || !after.keep) continue;
    if (after.keep->kind == Budget::Kind::kQuality) {
      concerned.quality.push_back(puts.name);
      continue;
    }
    PRECIS_TRY(add_segments(client, puts, owners, after, before, concerned.parts));
  }
  return concerned;
}

Result<ConcernedSegments> concerned_by(Client& client, const msg::SetBudget& change) {
  PRECIS_ASSIGN(const msg::Budgets now, client.budgets(change.scope.model, change.scope.session));
  const msg::BudgetRow& own = now.layers.back();
  const msg::BudgetValues values{
      {}, change.keep ? change.keep : own.keep, change.limit ? change.limit : own.limit};
  std::vector<std::string> sessions;
  if (!change.scope.session.empty()) sessions.push_back(change.scope.session);
  PRECIS_ASSIGN(const auto all, all_puts(client, std::move(sessions)));
  PRECIS_ASSIGN(const Owners owners, owners_of(client, all));
  ConcernedSegments concerned;
  for (const Puts& puts : all) {
    if (!puts.concerns(change.scope)) continue;
    InForce after = puts.after({{change.scope, {}, values}});
    const bool is_narrower = change.keep ? after.keep != change.keep : after.limit != change.limit;
    if (is_narrower) {  // a narrower scope sets another one
      concerned.apart.push_back(puts.name);
      continue;
    }
    if (!change.keep) after.keep = after.limit;
    PRECIS_TRY(add_segments(client, puts, owners, after, std::nullopt, concerned.parts));
  }
  return concerned;
}

}  // namespace precis::cli
