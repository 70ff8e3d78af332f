#include "client/cli/budget_stored.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client/cli/segment_filter.h"
#include "precis/reader_budget.h"

namespace precis::cli {
namespace {

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

// The layers of a model end with the tenant's own and the model's own.
InForce in_force_after(std::vector<msg::BudgetRow> layers, const Digest& model,
                       const std::vector<msg::BudgetChange>& changes) {
  for (const msg::BudgetChange& change : changes) {
    if (change.scope.model && *change.scope.model != model) continue;
    msg::BudgetRow& layer = layers[layers.size() - (change.scope.model ? 1 : 2)];
    layer.keep = change.after.keep;
    layer.limit = change.after.limit;
  }
  return in_force(layers);
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

}  // namespace

Result<ConcernedSegments> concerned_by(Client& client,
                                       const std::vector<msg::BudgetChange>& changes) {
  ConcernedSegments concerned;
  PRECIS_ASSIGN(const auto models, client.models());
  for (const msg::ModelRow& model : models) {
    PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets(model.fingerprint));
    const InForce before = in_force(budgets.layers);
    const InForce after = in_force_after(budgets.layers, model.fingerprint, changes);
    if (after == before || !after.keep) continue;
    if (after.keep->kind == Budget::Kind::kQuality) {
      concerned.quality.push_back(model.model.name);
      continue;
    }
    SegmentFilter filter;
    filter.model = model.fingerprint.hex();
    Status wrong;
    PRECIS_TRY(each_segment(client, filter, [&](const msg::SegmentInfo& row) {
      const auto keep = budget_of(row, model.model, after);
      wrong = keep.status();
      if (!wrong.ok()) return false;
      const auto is_smaller = gets_smaller(row, model.model, before, *keep);
      wrong = is_smaller.status();
      if (!wrong.ok()) return false;
      if (!*is_smaller) return true;
      Chosen& chosen = part_of(concerned.parts, *keep);
      chosen.more = chosen.segments.size() == kChosenMax;
      if (chosen.more) return false;
      chosen.segments.push_back(chosen_of(row));
      chosen.stored_bytes += row.stored_bytes;
      return true;
    }));
    PRECIS_TRY(wrong);
  }
  return concerned;
}

}  // namespace precis::cli
