#include "cachesvc/catalog/catalog_own_settings.h"

#include <algorithm>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {

bool CatalogOwnSettings::must_keep(const SettingRow& row) {
  if (row.value || row.table == Table::kMeta) return false;
  ModelKey key;
  if (row.table == Table::kBudgets) {
    const auto name = budget_in(row.key);
    if (name && name->scope.model) key = {name->tenant, *name->scope.model};
    return kept_models_.contains(key);
  }
  if (const auto name = model_in(row.key)) key = {name->tenant, name->fingerprint};
  if (row.table == Table::kProfiles) return kept_models_.contains(key);
  const bool keeps = models_.contains(key) && has_segments(key);
  if (keeps) {
    kept_models_.insert(key);
  } else {
    kept_models_.erase(key);
  }
  return keeps;
}

// Also segments of shards that are not loaded.
bool CatalogOwnSettings::has_segments(const ModelKey& key) const {
  const TenantSegments* const segments = tree_.of_tenant(key.first);
  if (segments != nullptr && segments->totals_of(key.second).segments > 0) return true;
  return std::ranges::any_of(kept_here_, [&](const auto& kept) {
    return kept.second->tenant == key.first && kept.second->model == key.second;
  });
}

// The rows that belong to one kept model, or some budgets of ended sessions.
std::vector<SettingRow> CatalogOwnSettings::own_changes() {
  std::lock_guard changing(changes_);
  if (!kept_models_.empty()) return rows_of_kept(*kept_models_.begin());
  std::erase_if(ended_budgets_, [&](const auto& ended) {
    return !budgets_.has(ended.first, {{}, ended.second}) ||
           find_session(ended.first, ended.second).ok();
  });
  std::vector<SettingRow> rows;
  for (const auto& [tenant, session] : ended_budgets_) {
    if (rows.size() == kSettingsPerChange) break;
    rows.push_back({Table::kBudgets, budget_key(tenant, {}, session), std::nullopt});
  }
  return rows;
}

std::vector<SettingRow> CatalogOwnSettings::rows_of_kept(const ModelKey& key) {
  const auto model = models_.find(key);
  const bool stays = model != models_.end() && has_segments(key);
  std::vector<SettingRow> rows;
  const auto add = [&](Table table, std::string name) {
    SettingRow& row = rows.emplace_back(SettingRow{table, std::move(name), std::nullopt});
    auto stored = store_.get(table, row.key);
    if (stays && stored.ok()) row.value = std::move(*stored);
  };
  add(Table::kModels, model_key(key.first, key.second));
  add(Table::kBudgets, budget_key(key.first, key.second));
  if (model == models_.end()) return rows;
  for (const auto& [name, profile] : model->second.profiles) {
    add(Table::kProfiles, profile_key(key.first, key.second, name));
  }
  return rows;
}

}  // namespace precis
