// A page of models starts after the fingerprint of the last row of the page before.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
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

Status CatalogModels::remove_model(std::string_view tenant, const Digest& fingerprint,
                                   bool only_check) {
  const ModelKey key{std::string(tenant), fingerprint};
  return change_settings([&]() -> Result<std::vector<SettingRow>> {
    PRECIS_ASSIGN(const Model* const model, known_model(tenant, fingerprint));
    if (const auto stored = describe(key, *model).segments; stored > 0) {
      return Status::conflict(
          "model '" + model->spec.name + "' (" + fingerprint.hex() + ") has " +
          counted(stored, "segment") +
          "; remove them first, or with it (precisctl model rm --recursive, which "
          "leaves those of pinned sessions)");
    }
    std::vector<SettingRow> rows;
    if (only_check) return rows;
    rows.push_back({Table::kModels, model_key(tenant, fingerprint), std::nullopt});
    for (const auto& [name, profile] : model->profiles) {
      rows.push_back({Table::kProfiles, profile_key(tenant, fingerprint, name), std::nullopt});
    }
    rows.push_back({Table::kBudgets, budget_key(tenant, fingerprint), std::nullopt});
    return rows;
  });
}

Status CatalogModels::add_projection(const StoredProjection& row, Bytes weights, Bytes grams) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const Model* const model, known_model(row.tenant, row.model));
  const auto known = model->projections.find(row.layer);
  // Ignores the Gram matrices: their last bits depend on the machine that computed them.
  const auto same = [&](const StoredProjection& other) {
    return other.weights == row.weights && other.width == row.width && other.dtype == row.dtype;
  };
  if (known != model->projections.end() && !same(*known->second)) {
    return Status::invalid(
        "layer " + std::to_string(row.layer) + " of model '" + model->spec.name +
        "' has another output projection (SHA-256 " + known->second->weights.hex() + ", not " +
        row.weights.hex() +
        "): other weights make another model, so register it with another revision");
  }
  Change change;
  const auto put_part = [&](bool is_gram, Bytes bytes) {
    const SegmentId id = projection_id(row.tenant, row.model, is_gram);
    change.put_borrowed(Table::kPayload, payload_key(id, row.layer), bytes);
  };
  put_part(false, weights);
  put_part(true, grams);
  change.put(Table::kProjections, projection_key(row.tenant, row.model, row.layer), encode(row));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  models_.at({row.tenant, row.model}).projections[row.layer] =
      std::make_shared<const StoredProjection>(row);
  return {};
}

Result<Catalog::Projection> CatalogModels::projection(std::string_view tenant, const Digest& model,
                                                      std::uint32_t layer) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const known, known_model(tenant, model));
  const auto found = known->projections.find(layer);
  if (found != known->projections.end()) return found->second;
  return Status::not_found("layer " + std::to_string(layer) + " of model '" + known->spec.name +
                           "' has no output projection; register the model with its o_proj");
}

Status CatalogModels::read_projection(const StoredProjection& row, ProjectionPart part,
                                      MutableBytes into) {
  const bool is_gram = part == ProjectionPart::kGrams;
  const SegmentId id = projection_id(row.tenant, row.model, is_gram);
  const Status status = store_.read_into(payload_key(id, row.layer), into);
  if (status.ok() && sha256(into) == (is_gram ? row.grams : row.weights)) return {};
  const bool damaged = status.ok() || status.code() == StatusCode::kNotFound ||
                       status.code() == StatusCode::kCorruption;
  if (!damaged) return status;
  return Status::corruption("the stored output projection of layer " + std::to_string(row.layer) +
                            " failed its check; push it again");
}

}  // namespace precis
