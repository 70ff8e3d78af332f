#include "cachesvc/catalog/catalog_settings.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/projection_row.h"
#include "precis/block_digest.h"
#include "precis/limits.h"
#include "precis/profile.h"

namespace precis {
namespace {

constexpr Table kTables[] = {Table::kModels, Table::kProfiles, Table::kBudgets, Table::kMeta};
constexpr std::size_t kClusterIdBytesMax = 64;

bool is_setting(Table table, std::string_view key) {
  if (table != Table::kMeta) return std::ranges::find(kTables, table) != std::end(kTables);
  return is_revision_key(key) || is_stored_tenant_key(key) || is_shared_projection_key(key) ||
         key == kClusterIdKey;
}

Status wrong_key(const char* of) {
  return Status::corruption(std::string("the row of a ") + of + " has the key of another");
}

}  // namespace

// A change of settings, not yet made: its rows, and how it changes memory once they are written.
struct CatalogSettings::Taking {
  std::map<ModelKey, ModelSpec> models;  // those that are put
  std::size_t new_tenants = 0;
  Change change;
  std::vector<std::function<void()>> apply;
  Taken taken;
  std::unique_lock<std::mutex> bytes;  // held while bytes of projections go
};

Result<std::vector<SettingRow>> CatalogSettings::settings() {
  std::vector<SettingRow> rows;
  for (const Table table : kTables) {
    PRECIS_TRY(store_.scan(table, [&](std::string_view key, Bytes value) -> Status {
      if (!is_setting(table, key)) return {};
      rows.push_back({table, std::string(key), std::vector<std::byte>(value.begin(), value.end())});
      return {};
    }));
  }
  return rows;
}

Status CatalogSettings::change_settings(const Plan& plan) {
  if (agree_) {
    return agree_([&] {
      std::lock_guard changing(changes_);
      return plan();
    });
  }
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(auto rows, plan());
  if (rows.empty()) return {};
  PRECIS_ASSIGN(const Taken taken, take(std::move(rows)));
  return taken.left_out.empty() ? Status() : taken.left_out.front().why;
}

Result<SettingsCatalog::Taken> CatalogSettings::take_settings(std::vector<SettingRow> rows) {
  for (SettingRow& row : rows) {  // which takes long, and commits need not wait for it
    if (row.table != Table::kProfiles || !row.value) continue;
    const auto stored = decode_stored_profile(*row.value);
    auto profile = stored.ok() ? parse_profile(stored->json) : Result<Profile>(stored.status());
    if (profile.ok()) row.profile = std::make_shared<const Profile>(std::move(*profile));
  }
  std::lock_guard changing(changes_);
  return take(std::move(rows));
}

Result<SettingsCatalog::Taken> CatalogSettings::take(std::vector<SettingRow> rows) {
  Taking taking;
  // Models come before what belongs to them.
  std::ranges::stable_sort(rows, {}, [](const SettingRow& row) {
    return std::ranges::find(kTables, row.table) - std::begin(kTables);
  });
  std::erase_if(rows, [&](const SettingRow& row) { return must_keep(row); });
  for (SettingRow& row : rows) {
    const auto take_it = [&]() -> Status {
      switch (row.table) {
        case Table::kModels: return take_model(row, taking);
        case Table::kProfiles: return take_profile(row, taking);
        case Table::kBudgets: return take_budget(row, taking);
        case Table::kMeta:
          if (is_revision_key(row.key)) return take_revision(row, taking);
          if (is_stored_tenant_key(row.key)) return take_tenant(row, taking);
          if (is_shared_projection_key(row.key)) return take_projection(row, taking);
          if (row.key == kClusterIdKey) return take_cluster_id(row, taking);
          [[fallthrough]];
        default: return Status::corruption("a row of a setting is in no table of settings");
      }
    };
    if (const Status status = take_it(); !status.ok()) {
      taking.taken.left_out.push_back({row.table, row.key, status});
    } else if (row.value) {
      taking.change.put(row.table, row.key, std::move(*row.value));
    } else {
      taking.change.erase(row.table, row.key);
    }
  }
  // A token that was given out survives the loss of the machine.
  PRECIS_TRY(write(std::move(taking.change),
                   taking.taken.tenants ? Durability::kFsync : Durability::kWal));
  std::unique_lock lock(state_);
  for (const auto& apply : taking.apply) apply();
  tell(msg::KvEvent::Cause::kAsked);
  return std::move(taking.taken);
}

Status CatalogSettings::take_model(const SettingRow& row, Taking& taking) {
  const auto name = model_in(row.key);
  if (!name || !name->rest.empty()) return wrong_key("model");
  const ModelKey key{name->tenant, name->fingerprint};
  if (!row.value) {
    erase_model(key, taking);
    return {};
  }
  PRECIS_ASSIGN(StoredModel stored, decode_stored_model(*row.value));
  PRECIS_TRY(stored.model.validate());
  if (model_key(stored.tenant, model_fingerprint(stored.model)) != row.key) {
    return wrong_key("model");
  }
  taking.models[key] = stored.model;
  taking.apply.emplace_back([this, key, spec = std::move(stored.model)] {
    const bool is_new = !models_.contains(key);
    models_[key].spec = spec;
    kept_models_.erase(key);
    if (is_new) tree_.model_added(key.first, key.second);
  });
  return {};
}

void CatalogSettings::erase_model(const ModelKey& key, Taking& taking) {
  const auto model = models_.find(key);
  if (model == models_.end()) return;
  for (const auto& [layer, projection] : model->second.projections) {
    taking.change.erase(Table::kProjections, projection_key(key.first, key.second, layer));
    taking.change.erase(Table::kMeta, shared_projection_key(key.first, key.second, layer));
    erase_projection(key, layer, taking);
  }
  taking.taken.models_erased.push_back(key);
  taking.apply.emplace_back([this, key] { models_.erase(key); });
  kept_models_.erase(key);
}

// Its bytes here.
void CatalogSettings::erase_projection(const ModelKey& key, std::uint32_t layer, Taking& taking) {
  if (!taking.bytes.owns_lock()) taking.bytes = std::unique_lock(projection_bytes_);
  for (const bool is_gram : {false, true}) {
    const SegmentId id = projection_id(key.first, key.second, is_gram);
    taking.change.erase(Table::kPayload, payload_key(id, layer));
  }
}

const ModelSpec* CatalogSettings::taken_model(const ModelKey& key, const Taking& taking) const {
  const auto added = taking.models.find(key);
  return added != taking.models.end() ? &added->second : find_model(key.first, key.second);
}

Status CatalogSettings::take_projection(const SettingRow& row, Taking& taking) {
  const auto name = shared_projection_in(row.key);
  if (!name) return wrong_key("projection");
  const ModelKey of{name->tenant, name->model};
  Projection projection;
  if (row.value) {
    if (!in_shards()) {
      return Status::unsupported(
          "the nodes that have output projections share a storage, and this "
          "one does not: give all nodes the same configuration");
    }
    PRECIS_ASSIGN(StoredProjection stored, decode_stored_projection(*row.value));
    if (shared_projection_key(stored.tenant, stored.model, stored.layer) != row.key) {
      return wrong_key("projection");
    }
    const ModelSpec* const spec = taken_model(of, taking);
    if (spec == nullptr) return Status::corruption("a projection's model is not registered");
    PRECIS_TRY(check_projection_row(stored, *spec));
    projection = std::make_shared<const StoredProjection>(std::move(stored));
  }
  erase_projection(of, name->layer, taking);  // bytes of another one
  taking.apply.emplace_back([this, of, layer = name->layer, projection] {
    const auto model = models_.find(of);
    if (model == models_.end()) return;
    if (projection) {
      model->second.projections[layer] = projection;
    } else {
      model->second.projections.erase(layer);
    }
  });
  return {};
}

Status CatalogSettings::take_profile(const SettingRow& row, Taking& taking) {
  const auto name = model_in(row.key);
  if (!name) return wrong_key("profile");
  const ModelKey of{name->tenant, name->fingerprint};
  KnownProfile known;
  if (row.value) {
    PRECIS_ASSIGN(const StoredProfile stored, decode_stored_profile(*row.value));
    known.profile = row.profile;
    if (!known.profile) {
      PRECIS_ASSIGN(Profile profile, parse_profile(stored.json));
      known.profile = std::make_shared<const Profile>(std::move(profile));
    }
    if (profile_key(stored.tenant, known.profile->model, known.profile->name) != row.key) {
      return wrong_key("profile");
    }
    const ModelSpec* const spec = taken_model(of, taking);
    if (spec == nullptr) return Status::corruption("a profile's model is not registered");
    PRECIS_TRY(check_profile_shape(*known.profile, *spec));
    known.digest = profile_digest(*known.profile);
    known.added_unix_ms = stored.added_unix_ms;
    known.bytes = stored.json.size();
  }
  taking.apply.emplace_back([this, of, profile = name->rest, known] {
    const auto model = models_.find(of);
    if (model == models_.end()) return;
    if (known.profile) {
      model->second.profiles[profile] = known;
    } else {
      model->second.profiles.erase(profile);
    }
  });
  return {};
}

Status CatalogSettings::take_budget(const SettingRow& row, Taking& taking) {
  const auto name = budget_in(row.key);
  if (!name) return wrong_key("budget");
  if (!row.value) {
    taking.apply.emplace_back([this, name] {
      budgets_.erase(name->tenant, name->scope);
      ended_budgets_.erase({name->tenant, name->scope.session});
    });
    return {};
  }
  PRECIS_ASSIGN(StoredBudget stored, decode_stored_budget(*row.value));
  const bool is_it = name->tenant == stored.tenant && name->scope.model == stored.model &&
                     name->scope.session == stored.session;
  if (!is_it) return wrong_key("budget");
  taking.apply.emplace_back([this, stored = std::move(stored)] {
    budgets_.put(stored);
    ended_budgets_.erase({stored.tenant, stored.session});  // another node has set it since
  });
  return {};
}

Status CatalogSettings::take_revision(const SettingRow& row, Taking& taking) {
  const auto name = revision_in(row.key);
  if (!name) return wrong_key("budget's revision");
  if (!row.value) {
    taking.apply.emplace_back([this, name] { budgets_.erase(name->tenant, name->number); });
    return {};
  }
  PRECIS_ASSIGN(StoredRevision stored, decode_stored_revision(*row.value));
  if (revision_key(stored.tenant, stored.revision.number) != row.key) {
    return wrong_key("budget's revision");
  }
  taking.apply.emplace_back(
      [this, stored = std::move(stored)] { budgets_.put(stored.tenant, stored.revision); });
  return {};
}

Status CatalogSettings::take_tenant(const SettingRow& row, Taking& taking) {
  const auto name = stored_tenant_in(row.key);
  if (!name) return wrong_key("tenant");
  std::optional<StoredTenant> stored;
  if (row.value) {
    PRECIS_ASSIGN(stored, decode_stored_tenant(*row.value));
    if (stored->name != *name) return wrong_key("tenant");
    if (tenants_.size() + taking.new_tenants >= limits::kStoredTenantsMax &&
        !tenants_.contains(*name)) {
      return Status::corruption("there are more tenants than a service can have");
    }
    taking.new_tenants += tenants_.contains(*name) ? 0 : 1;
  }
  taking.taken.tenants = true;
  taking.apply.emplace_back([this, name, stored = std::move(stored)] {
    if (stored) {
      tenants_[*name] = *stored;
    } else {
      tenants_.erase(*name);
    }
  });
  return {};
}

Status CatalogSettings::take_cluster_id(const SettingRow& row, Taking& taking) {
  std::string id;
  if (row.value) id.assign(reinterpret_cast<const char*>(row.value->data()), row.value->size());
  if (id.size() > kClusterIdBytesMax) return Status::corruption("the cluster's id is too long");
  taking.apply.emplace_back([this, id] { cluster_id_ = id; });
  return {};
}

std::string CatalogSettings::cluster_id() const {
  std::shared_lock lock(state_);
  return cluster_id_;
}

SettingRow SettingsCatalog::cluster_id_row(const std::string& id) {
  const Bytes bytes = std::as_bytes(std::span(id));
  return {Table::kMeta, std::string(kClusterIdKey),
          std::vector<std::byte>(bytes.begin(), bytes.end())};
}

}  // namespace precis
