// A page of models starts after the fingerprint of the last row of the page before.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/catalog_models.h"
#include "cachesvc/catalog/catalog_projections.h"
#include "precis/block_digest.h"
#include "precis/limits.h"
#include "precis/rope.h"

namespace precis {

Result<msg::ModelRow> CatalogModels::register_model(std::string_view tenant,
                                                    const ModelSpec& model) {
  PRECIS_TRY(model.validate());
  const ModelKey key{std::string(tenant), model_fingerprint(model)};
  {
    std::shared_lock lock(state_);
    if (const auto known = models_.find(key); known != models_.end()) {
      return describe(key, known->second);
    }
  }
  PRECIS_TRY(change_settings([&]() -> Result<std::vector<SettingRow>> {
    std::vector<SettingRow> rows;
    if (models_.contains(key)) return rows;
    PRECIS_TRY(check_rope_scaling(model));  // a model that is registered already is not refused
    const auto [first, last] = models_of(tenant);
    if (static_cast<std::size_t>(std::distance(first, last)) >= limits::kModelsPerTenantMax) {
      return Status::rejected("tenant '" + key.first + "' has " +
                              std::to_string(limits::kModelsPerTenantMax) +
                              " models, which is the limit; remove one (precisctl model rm)");
    }
    rows.push_back(
        {Table::kModels, model_key(tenant, key.second), encode(StoredModel{key.first, model})});
    return rows;
  }));
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const known, known_model(tenant, key.second));
  return describe(key, *known);
}

Result<ModelSpec> CatalogModels::model(std::string_view tenant, const Digest& fingerprint) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const model, known_model(tenant, fingerprint));
  return model->spec;
}

Result<msg::Models> CatalogModels::models_page(std::string_view tenant,
                                               const msg::ListModels& request) const {
  Digest after{};
  if (!request.after.empty()) {
    if (request.after.size() != after.bytes.size()) return bad_cursor(request.after, "models");
    std::memcpy(after.bytes.data(), request.after.data(), after.bytes.size());
  }
  msg::Models page;
  std::shared_lock lock(state_);
  auto [model, last] = models_of(tenant);
  if (!request.after.empty()) model = models_.upper_bound({std::string(tenant), after});
  for (; model != last; ++model) {
    if (page.rows.size() == limits::kModelPageRowsMax) {
      const Digest& end = page.rows.back().fingerprint;
      page.next.assign(reinterpret_cast<const char*>(end.bytes.data()), end.bytes.size());
      break;
    }
    page.rows.push_back(describe(model->first, model->second));
  }
  return page;
}

msg::ModelRow CatalogModels::describe(const ModelKey& key, const Model& model) const {
  const TenantSegments* const segments = tree_.of_tenant(key.first);
  const auto totals = segments ? segments->totals_of(key.second) : TenantSegments::Totals();
  return {model.spec,          key.second,
          totals.segments,     static_cast<std::uint32_t>(model.projections.size()),
          totals.stored_bytes, totals.original_bytes};
}

// kConflict if segments of it are stored.
Result<const CatalogModels::Model*> CatalogModels::unused_model(const ModelKey& key) const {
  PRECIS_ASSIGN(const Model* const model, known_model(key.first, key.second));
  const auto stored = describe(key, *model).segments;
  if (stored == 0) return model;
  return Status::conflict("model '" + model->spec.name + "' (" + key.second.hex() + ") has " +
                          counted(stored, "segment") +
                          "; remove them first, or with it (precisctl model rm --recursive, which "
                          "leaves those of pinned sessions)");
}

Status CatalogModels::remove_model(std::string_view tenant, const Digest& fingerprint,
                                   bool only_check) {
  const ModelKey key{std::string(tenant), fingerprint};
  std::vector<Projection> removed;
  bool is_last = false;
  while (!is_last) {
    PRECIS_TRY(change_settings([&]() -> Result<std::vector<SettingRow>> {
      removed.clear();
      is_last = true;
      PRECIS_ASSIGN(const Model* const model, unused_model(key));
      if (only_check) return std::vector<SettingRow>();
      std::vector<SettingRow> rows = rows_of(key, *model);
      if (!in_shards()) return rows;
      // If they are too many for one change, projections go first. If that is interrupted, the
      // model remains without some of them.
      is_last = model->projections.empty() ||
                rows.size() + model->projections.size() <= kSettingsPerChange;
      if (!is_last) rows.clear();
      for (const auto& [layer, projection] : model->projections) {
        if (rows.size() == kSettingsPerChange) break;
        rows.push_back({Table::kMeta, shared_projection_key(tenant, fingerprint, layer), {}});
        removed.push_back(projection);
      }
      return rows;
    }));
    CatalogProjections::remove_shared_bytes(store_, removed);
  }
  return {};
}

std::vector<SettingRow> CatalogModels::rows_of(const ModelKey& key, const Model& model) {
  std::vector<SettingRow> rows;
  rows.push_back({Table::kModels, model_key(key.first, key.second), std::nullopt});
  for (const auto& [name, profile] : model.profiles) {
    rows.push_back({Table::kProfiles, profile_key(key.first, key.second, name), std::nullopt});
  }
  rows.push_back({Table::kBudgets, budget_key(key.first, key.second), std::nullopt});
  return rows;
}

}  // namespace precis
