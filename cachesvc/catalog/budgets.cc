#include "cachesvc/catalog/budgets.h"

#include <algorithm>

#include "precis/limits.h"
#include "precis/recipe.h"

namespace precis {
namespace {

constexpr std::uint64_t kPartsPerMillion = 1'000'000;

Status check_keep(const Budget& keep) {
  const auto is_share = [](std::uint64_t ppm) { return ppm > 0 && ppm <= kPartsPerMillion; };
  bool fits = false;
  switch (keep.kind) {
    case Budget::Kind::kAll: fits = true; break;
    case Budget::Kind::kRatio: fits = is_share(keep.value); break;
    case Budget::Kind::kQuality:
      fits = is_share(keep.quality_share_ppm()) && is_share(keep.quality_cap_ppm());
      break;
    case Budget::Kind::kEntries:
    case Budget::Kind::kBytes: fits = keep.value > 0; break;
  }
  return fits ? Status()
              : Status::invalid("keep is " + keep.to_string() +
                                ", must be a ratio or a quality in (0, 1], or at least one entry "
                                "or byte");
}

Status check_recipe(const std::string& recipe) {
  if (recipe.size() > limits::kRecipeBytesMax) {
    return Status::invalid("recipe has " + std::to_string(recipe.size()) + " B, at most " +
                           std::to_string(limits::kRecipeBytesMax) + " B are allowed");
  }
  return recipe.empty() ? Status() : parse_recipe(recipe).status();
}

}  // namespace

void BudgetTable::put(StoredBudget row) {
  Key key{row.tenant, row.model};
  rows_.insert_or_assign(std::move(key), std::move(row));
}

void BudgetTable::erase(std::string_view tenant, const Digest& model) {
  rows_.erase({std::string(tenant), model});
}

const StoredBudget* BudgetTable::find(std::string_view tenant,
                                      const std::optional<Digest>& model) const {
  const auto row = rows_.find({std::string(tenant), model});
  return row == rows_.end() ? nullptr : &row->second;
}

Result<StoredBudget> BudgetTable::changed(std::string_view tenant, const msg::SetBudget& request,
                                          std::uint64_t now_ms) const {
  if (!request.recipe && !request.keep) {
    return Status::invalid("a change of the budget names neither a recipe nor a keep");
  }
  if (request.recipe) PRECIS_TRY(check_recipe(*request.recipe));
  if (request.keep) PRECIS_TRY(check_keep(*request.keep));

  StoredBudget row;
  if (const StoredBudget* present = find(tenant, request.scope.model)) row = *present;
  row.tenant = tenant;
  row.model = request.scope.model;
  if (request.recipe) row.recipe = *request.recipe;
  if (request.keep) {
    row.keep = request.keep->kind == Budget::Kind::kAll ? std::nullopt : request.keep;
  }
  // All rows of a tenant share one sequence, so that a version identifies the whole state.
  for (auto other = rows_.lower_bound({row.tenant, std::nullopt});
       other != rows_.end() && other->first.first == row.tenant; ++other) {
    row.version = std::max(row.version, other->second.version);
  }
  ++row.version;
  row.set_unix_ms = now_ms;
  return row;
}

msg::Budgets BudgetTable::merged(std::string_view tenant, const msg::BudgetScope& scope,
                                 std::string_view model_name, const msg::BudgetRow& configured,
                                 const std::string& by_profile) const {
  const auto stored = [&](std::string name, const std::optional<Digest>& model) {
    const StoredBudget* const row = find(tenant, model);
    return row ? msg::BudgetRow{std::move(name), row->recipe, row->keep, row->version,
                                row->set_unix_ms}
               : msg::BudgetRow{std::move(name), {}, {}, 0, 0};
  };
  msg::Budgets budgets;
  budgets.layers.push_back(
      {"built-in", std::string(kBuiltInRecipe), Budget::ratio_ppm(kBuiltInKeepPpm), 0, 0});
  budgets.layers.push_back(configured);
  budgets.layers.back().scope = "config";
  if (!by_profile.empty()) budgets.layers.push_back({"profile", by_profile, {}, 0, 0});
  budgets.layers.push_back(stored("global", std::nullopt));
  if (scope.model)
    budgets.layers.push_back(stored("model " + std::string(model_name), scope.model));

  msg::BudgetRow& effective = budgets.effective;
  effective.scope = budgets.layers.back().scope;
  for (const msg::BudgetRow& layer : budgets.layers) {
    if (!layer.recipe.empty()) effective.recipe = layer.recipe;
    if (layer.keep) effective.keep = layer.keep;
    effective.version = std::max(effective.version, layer.version);
    effective.set_unix_ms = std::max(effective.set_unix_ms, layer.set_unix_ms);
  }
  return budgets;
}

}  // namespace precis
