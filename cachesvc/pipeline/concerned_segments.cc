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

// The rows that one piece looks at. A session counts as its turns and kSessionRows, for the
// look-ups that it takes.
constexpr std::size_t kPieceRows = 4096, kSessionRows = 32;

class Chooser {
 public:
  Chooser(const Catalog& catalog, std::string_view tenant, const BudgetDefaults& configured,
          const BudgetsToApply& request)
      : catalog_(catalog), tenant_(tenant), configured_(configured), request_(request) {}

  // As the piece of concerned_by().
  bool step(std::optional<Result<ConcernedSegments>>& result) {
    const Status status = look_at_some();
    if (!status.ok()) result.emplace(status);
    if (status.ok() && stage_ == Stage::kDone) result.emplace(std::move(concerned_));
    return !result.has_value();
  }

 private:
  enum class Stage { kModels, kUses, kSessions, kRows, kDone };

  Status look_at_some() {
    switch (stage_) {
      case Stage::kModels: return decide_models();
      case Stage::kUses: list_uses(); break;
      case Stage::kSessions: decide_sessions(); break;
      case Stage::kRows: return add_some();
      case Stage::kDone: break;
    }
    return {};
  }

  // A page of them.
  Status decide_models() {
    PRECIS_ASSIGN(const msg::Models page, catalog_.models_page(tenant_, {after_model_}));
    for (const msg::ModelRow& row : page.rows) {
      if (auto decided = decide({row.fingerprint, {}}, row.model.name, row.model)) {
        models_.emplace(row.fingerprint, std::move(*decided));
      }
    }
    after_model_ = page.next;
    if (!after_model_.empty()) return {};
    for (std::string& name : catalog_.sessions_with_budgets(tenant_)) {
      names_.insert(std::move(name));
    }
    for (const msg::BudgetChange& change : request_.changes) {
      if (!change.scope.session.empty()) names_.insert(change.scope.session);
    }
    stage_ = Stage::kUses;
    return {};
  }

  // Called before the sessions are read. So a turn that a session gets in between is not listed,
  // and the budget of a wider scope does not trim it.
  void list_uses() {
    uses_ = catalog_.stored_uses(tenant_);
    // A child begins where its parent ends, so this puts parents first.
    std::ranges::stable_sort(uses_, {}, [](const StoredUse& use) { return use.row->begin; });
    stage_ = Stage::kSessions;
  }

  void decide_sessions() {
    for (std::size_t rows = 0; !names_.empty() && rows < kPieceRows; rows += kSessionRows) {
      rows += decide_session(names_.extract(names_.begin()).value());
    }
    if (names_.empty()) stage_ = Stage::kRows;
  }

  // Returns the number of its turns.
  std::size_t decide_session(const std::string& name) {
    const auto path = catalog_.session_turns(tenant_, name);
    if (!path.ok() || path->turns.empty()) return 0;  // it ended meanwhile, or has no turn yet
    const Digest& fingerprint = path->turns.back().row->model;
    const auto model = catalog_.model(tenant_, fingerprint);
    if (!model.ok()) return path->turns.size();
    const std::optional<Decided>& decided =
        sessions_.emplace_back(decide({fingerprint, name}, "session " + name, *model));
    for (const SessionTurns::Turn& turn : path->turns) {
      if (!turn.is_shared) owners_.try_emplace(turn.row->id, &decided);
    }
    return path->turns.size();
  }

  Status add_some() {
    const std::size_t end = std::min(next_ + kPieceRows, uses_.size());
    for (; next_ < end; ++next_) PRECIS_TRY(add(*uses_[next_].row));
    if (next_ == uses_.size()) stage_ = Stage::kDone;
    return {};
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
    if (after.keep->kind != Budget::Kind::kLoss) return decided;
    concerned_.loss.push_back(puts.name);
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
    // A part of a split segment may be older than its time of creation.
    const bool is_part = row.whole_entries != 0;
    if (!is_part && row.created_unix_ms > request_.stored_by_ms) return {};
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
    if (request_.smaller_only && before.keep && before.keep->kind != Budget::Kind::kLoss) {
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
  Stage stage_ = Stage::kModels;
  std::string after_model_;
  std::set<std::string> names_;  // of the sessions that are left to decide
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
