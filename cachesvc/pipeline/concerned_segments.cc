#include "cachesvc/pipeline/concerned_segments.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "cachesvc/pipeline/cut.h"
#include "precis/budget_scope.h"
#include "precis/reader_budget.h"

namespace precis {
namespace {

struct InForce {
  std::optional<Budget> keep, limit;
  bool operator==(const InForce&) const = default;
};

// The puts of a model, or those that name a session.
struct Puts {
  msg::BudgetScope scope;
  std::string name;
  ModelSpec model;
  std::vector<msg::BudgetRow> layers;

  bool concern(const msg::BudgetScope& changed) const {
    return (changed.session.empty() || changed.session == scope.session) &&
           (!changed.model || changed.model == scope.model);
  }
  // The puts get this with the values before or after the changes.
  InForce with(const std::vector<msg::BudgetChange>& changes,
               msg::BudgetValues msg::BudgetChange::*values) const {
    std::vector<msg::BudgetRow> rows = layers;
    // The layers end with the tenant's own, the model's own and, if there is one, the session's.
    const std::size_t of_session = scope.session.empty() ? 0 : 1;
    for (const msg::BudgetChange& change : changes) {
      if (!concern(change.scope)) continue;
      const std::size_t from_end =
          !change.scope.session.empty() ? 1 : of_session + (change.scope.model ? 1 : 2);
      msg::BudgetRow& row = rows[rows.size() - from_end];
      row.keep = (change.*values).keep;
      row.limit = (change.*values).limit;
    }
    InForce in_force;
    for (const msg::BudgetRow& row : rows) {
      if (row.keep) in_force.keep = row.keep;
      if (row.limit) in_force.limit = row.limit;
    }
    return in_force;
  }
};

struct Decided {
  std::string name;
  ModelSpec model;
  InForce before, after;
};

constexpr std::size_t kPieceRows = 4096;

class Chooser {
 public:
  Chooser(const Catalog& catalog, std::string_view tenant, const BudgetDefaults& configured,
          const BudgetsToApply& request)
      : catalog_(catalog), tenant_(tenant), configured_(configured), request_(request) {}

  // As the piece of concerned_by().
  bool step(std::optional<Result<ConcernedSegments>>& result) {
    const Status status = begun_ ? add_some() : begin();
    if (!status.ok()) result.emplace(status);
    if (status.ok() && next_ == uses_.size()) result.emplace(std::move(concerned_));
    return !result.has_value();
  }

 private:
  Status begin() {
    begun_ = true;
    PRECIS_TRY(decide_models());
    decide_sessions();
    uses_ = catalog_.stored_uses(tenant_);
    // A child begins where its parent ends, so this puts parents first.
    std::ranges::stable_sort(uses_, {}, [](const StoredUse& use) { return use.row->begin; });
    return {};
  }

  Status add_some() {
    const std::size_t end = std::min(next_ + kPieceRows, uses_.size());
    for (; next_ < end; ++next_) PRECIS_TRY(add(*uses_[next_].row));
    return {};
  }

  Status decide_models() {
    for (std::string after;;) {
      PRECIS_ASSIGN(const msg::Models page, catalog_.models_page(tenant_, {after}));
      for (const msg::ModelRow& row : page.rows) {
        if (auto decided = decide({row.fingerprint, {}}, row.model.name, row.model)) {
          models_.emplace(row.fingerprint, std::move(*decided));
        }
      }
      if (page.next.empty()) return {};
      after = page.next;
    }
  }

  void decide_sessions() {
    std::set<std::string> sessions;
    for (std::string& name : catalog_.sessions_with_budgets(tenant_)) {
      sessions.insert(std::move(name));
    }
    for (const msg::BudgetChange& change : request_.changes) {
      if (!change.scope.session.empty()) sessions.insert(change.scope.session);
    }
    for (const std::string& name : sessions) {
      const auto path = catalog_.session_turns(tenant_, name);
      if (!path.ok() || path->turns.empty()) continue;  // it ended meanwhile, or has no turn yet
      const Digest& fingerprint = path->turns.back().row->model;
      const auto model = catalog_.model(tenant_, fingerprint);
      if (!model.ok()) continue;
      const std::optional<Decided>& decided =
          sessions_.emplace_back(decide({fingerprint, name}, "session " + name, *model));
      for (const SessionTurns::Turn& turn : path->turns) {
        if (!turn.is_shared) owners_.try_emplace(turn.row->id, &decided);
      }
    }
  }

  // None if the segments of these puts stay as they are.
  std::optional<Decided> decide(const msg::BudgetScope& scope, std::string name,
                                const ModelSpec& model) {
    const auto& changes = request_.changes;
    Puts puts{scope, std::move(name), model, catalog_.budgets(tenant_, scope, configured_).layers};
    const auto concern = [&](const msg::BudgetChange& change) {
      return puts.concern(change.scope);
    };
    if (std::ranges::none_of(changes, concern)) return std::nullopt;
    Decided decided{puts.name, model, puts.with(changes, &msg::BudgetChange::before),
                    puts.with(changes, &msg::BudgetChange::after)};
    InForce& after = decided.after;
    if (request_.smaller_only) {
      if (after == decided.before) return std::nullopt;
    } else {
      const bool reached = std::ranges::any_of(changes, [&](const msg::BudgetChange& change) {
        const msg::BudgetValues& set = change.after;
        return concern(change) &&
               (request_.to_limit ? set.limit == after.limit : set.keep == after.keep);
      });
      if (!reached) {
        concerned_.apart.push_back(puts.name);  // a narrower scope sets another one
        return std::nullopt;
      }
      if (request_.to_limit) after.keep = after.limit;
    }
    if (!after.keep) return std::nullopt;
    if (after.keep->kind != Budget::Kind::kQuality) return decided;
    concerned_.quality.push_back(puts.name);
    return std::nullopt;
  }

  const Decided* decided_for(const SegmentRow& row) const {
    if (const auto owner = owners_.find(row.id); owner != owners_.end()) {
      return *owner->second ? &**owner->second : nullptr;
    }
    const auto model = models_.find(row.model);
    return model == models_.end() ? nullptr : &model->second;
  }

  Status add(const SegmentRow& row) {
    const Decided* const decided = decided_for(row);
    if (!decided) return {};
    if (row.recipe != recipe_text_) {  // to parse a recipe costs more than all else here
      PRECIS_ASSIGN(recipe_, parse_recipe(row.recipe));
      recipe_text_ = row.recipe;
    }
    PRECIS_ASSIGN(const Budget keep, keep_of(row, recipe_, *decided, decided->after));
    PRECIS_ASSIGN(const auto entries, cut_entries_at_most(row, decided->model, keep));
    if (entries >= row.plan.total()) return {};
    const InForce& before = decided->before;
    // A budget that can't be compared counts as larger.
    if (request_.smaller_only && before.keep && before.keep->kind != Budget::Kind::kQuality) {
      PRECIS_ASSIGN(const Budget was, keep_of(row, recipe_, *decided, before));
      PRECIS_ASSIGN(const auto entries_before, cut_entries_at_most(row, decided->model, was));
      if (entries >= entries_before) return {};
    }
    concerned_.segments.push_back({row.id, keep, row.stored_bytes});
    return {};
  }

  static Result<Budget> keep_of(const SegmentRow& row, const Recipe& recipe, const Decided& decided,
                                const InForce& values) {
    if (!values.limit) return *values.keep;
    return within_limit(recipe, decided.model, row.end - row.begin, row.begin, *values.keep,
                        *values.limit);
  }

  const Catalog& catalog_;
  const std::string_view tenant_;
  const BudgetDefaults& configured_;
  const BudgetsToApply& request_;
  std::map<Digest, Decided> models_;
  std::deque<std::optional<Decided>> sessions_;  // with a budget of their own
  std::unordered_map<SegmentId, const std::optional<Decided>*> owners_;  // of their segments
  std::string recipe_text_;
  Recipe recipe_;  // of recipe_text_
  ConcernedSegments concerned_;
  bool begun_ = false;
  std::vector<StoredUse> uses_;
  std::size_t next_ = 0;  // of uses_
};

}  // namespace

std::function<bool()> concerned_by(const Catalog& catalog, std::string_view tenant,
                                   const BudgetDefaults& configured, const BudgetsToApply& request,
                                   std::optional<Result<ConcernedSegments>>& result) {
  auto chooser = std::make_shared<Chooser>(catalog, tenant, configured, request);
  return [chooser, &result] { return chooser->step(result); };
}

}  // namespace precis
