// Opening the catalog, and its totals.
#include <algorithm>
#include <array>
#include <cstring>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/block_digest.h"

namespace precis {

Result<std::unique_ptr<Catalog>> Catalog::open(Store& store, const Clock& clock,
                                               std::uint64_t kept_bytes_max, bool in_shards) {
  auto catalog = std::make_unique<CatalogImpl>(store, clock, kept_bytes_max, in_shards);
  PRECIS_TRY(catalog->load());
  return std::unique_ptr<Catalog>(std::move(catalog));
}

CatalogImpl::CatalogImpl(Store& store, const Clock& clock, std::uint64_t kept_bytes_max,
                         bool in_shards)
    : CatalogState(store, clock, kept_bytes_max, in_shards) {}

CatalogImpl::~CatalogImpl() {
  save_all_hits();
  forget_evicted();
}

// Writes the hit counts that are not stored yet. If a write fails, they are lost.
void CatalogImpl::save_all_hits() {
  std::lock_guard changing(changes_);
  for (std::size_t left = unsaved_hits_.size(); left > 0;) {
    if (!write({}, Durability::kMemory).ok()) return;
    left -= std::min(left, kHitRowsPerChange);
  }
}

Status CatalogImpl::load() {
  PRECIS_TRY(check_format());
  PRECIS_TRY(load_models());  // the other tables are checked against them
  PRECIS_TRY(load_projections());
  PRECIS_TRY(load_profiles());
  PRECIS_TRY(load_segments());
  PRECIS_TRY(load_sessions());
  PRECIS_TRY(load_budgets());
  return load_marks();
}

Status CatalogImpl::check_format() {
  if (store_.get(Table::kMeta, std::string(kRestoringKey)).ok()) {
    return Status::corruption(
        "a backup was not restored to its end here: empty the directory and "
        "restore it again (precisctl restore)");
  }
  const std::string key(kCatalogFormatKey);
  const auto stored = store_.get(Table::kMeta, key);
  if (stored.status().code() == StatusCode::kNotFound) {
    std::array<std::byte, sizeof kCatalogFormat> value;
    std::memcpy(value.data(), &kCatalogFormat, sizeof kCatalogFormat);
    return store_.write({{{Table::kMeta, key, value}}, {}}, Durability::kFsync);
  }
  PRECIS_TRY(stored.status());
  std::uint32_t format = 0;
  if (stored->size() != sizeof format) {
    return Status::corruption("catalog: its format row has " + std::to_string(stored->size()) +
                              " B, not 4");
  }
  std::memcpy(&format, stored->data(), sizeof format);
  if (format <= kCatalogFormat) return {};
  return Status::version("catalog has format " + std::to_string(format) +
                         ", this build reads up to " + std::to_string(kCatalogFormat) +
                         ": use the newer build that wrote it");
}

// Loads every row of a table that is intact and is stored under its own key. Other rows are left on
// disk and counted. A row of a newer format is not damage: opening fails, and nothing is lost.
template <typename Stored>
Status CatalogImpl::load_rows(Table table, Result<Stored> (*decode)(Bytes),
                              std::string (*key_of)(const Stored&),
                              const std::function<void(Stored)>& take) {
  return store_.scan(table, [&](std::string_view key, Bytes value) -> Status {
    Result<Stored> row = decode(value);
    if (row.status().code() == StatusCode::kVersionMismatch) return row.status();
    if (!row.ok() || key_of(*row) != key) {
      bad_rows_.emplace(table, key);
    } else {
      take(std::move(row).value());
    }
    return {};
  });
}

Status CatalogImpl::load_models() {
  const auto key_of = [](const StoredModel& row) {
    return model_key(row.tenant, model_fingerprint(row.model));
  };
  return load_rows<StoredModel>(Table::kModels, decode_stored_model, key_of,
                                [this](StoredModel row) {
                                  const Digest fingerprint = model_fingerprint(row.model);
                                  models_[{row.tenant, fingerprint}].spec = std::move(row.model);
                                });
}

Status CatalogImpl::load_projections() {
  const auto key_of = [](const StoredProjection& row) {
    return projection_key(row.tenant, row.model, row.layer);
  };
  return load_rows<StoredProjection>(
      Table::kProjections, decode_stored_projection, key_of, [this](StoredProjection row) {
        const auto model = models_.find({row.tenant, row.model});
        // If the model's row is bad, a client can push the weights again. In shards, projections
        // are settings, and these rows are left from before the nodes shared a storage.
        if (model == models_.end() || in_shards()) return;
        const std::uint32_t layer = row.layer;
        model->second.projections[layer] = std::make_shared<const StoredProjection>(std::move(row));
      });
}

Status CatalogImpl::load_profiles() {
  // The row and its content have separate format versions.
  const auto decode = [](Bytes bytes) -> Result<StoredProfile> {
    PRECIS_ASSIGN(StoredProfile row, decode_stored_profile(bytes));
    PRECIS_TRY(parse_profile(row.json).status());
    return row;
  };
  const auto key_of = [](const StoredProfile& row) {
    const Profile profile = *parse_profile(row.json);
    return profile_key(row.tenant, profile.model, profile.name);
  };
  return load_rows<StoredProfile>(
      Table::kProfiles, decode, key_of, [this](const StoredProfile& row) {
        Profile profile = *parse_profile(row.json);
        const auto model = models_.find({row.tenant, profile.model});
        if (model == models_.end()) return;
        const Digest digest = profile_digest(profile);
        const std::string name = profile.name;
        model->second.profiles[name] = {std::make_shared<const Profile>(std::move(profile)), digest,
                                        row.added_unix_ms, row.json.size()};
      });
}

Status CatalogImpl::load_segments() {
  const auto key_of = [](const SegmentRow& row) { return segment_key(row.id); };
  return load_rows<SegmentRow>(
      Table::kSegments, decode_segment_row, key_of, [this](SegmentRow read) {
        const auto row = std::make_shared<const SegmentRow>(std::move(read));
        if (in_shards() && row->shard) {  // load_shard() decides whether it is current
          kept_here_[{*row->shard, row->id}] = row;
        } else {
          tree_.put(row, Durability::kFsync, commits_);
        }
      });
}

Status CatalogImpl::load_sessions() {
  const auto key_of = [](const StoredSession& row) {
    return session_key(row.tenant, row.row.name);
  };
  if (in_shards()) return {};  // the shared storage has them; the tips of others are not found
  return load_rows<StoredSession>(
      Table::kSessions, decode_stored_session, key_of,
      [this](StoredSession row) { sessions_.put(row.tenant, std::move(row.row)); });
}

Status CatalogImpl::load_budgets() {
  const auto key_of = [](const StoredBudget& row) {
    return budget_key(row.tenant, row.model, row.session);
  };
  return load_rows<StoredBudget>(Table::kBudgets, decode_stored_budget, key_of,
                                 [this](StoredBudget row) { budgets_.put(std::move(row)); });
}

Status CatalogImpl::load_marks() {
  return store_.scan(Table::kMeta, [this](std::string_view key, Bytes value) -> Status {
    if (is_revision_key(key)) {  // in the order of their numbers
      auto row = decode_stored_revision(value);
      if (row.status().code() == StatusCode::kVersionMismatch) return row.status();
      if (!row.ok() || revision_key(row->tenant, row->revision.number) != key) {
        bad_rows_.emplace(Table::kMeta, key);
      } else {
        budgets_.put(row->tenant, std::move(row->revision));
      }
    }
    if (key == kClusterIdKey) {
      cluster_id_.assign(reinterpret_cast<const char*>(value.data()), value.size());
    }
    if (is_stored_tenant_key(key)) {
      auto row = decode_stored_tenant(value);
      if (row.status().code() == StatusCode::kVersionMismatch) return row.status();
      if (!row.ok() || stored_tenant_key(row->name) != key) {
        bad_rows_.emplace(Table::kMeta, key);
      } else {
        tenants_[row->name] = std::move(*row);
      }
    }
    if (is_shared_projection_key(key) && in_shards()) {
      auto row = decode_stored_projection(value);
      if (row.status().code() == StatusCode::kVersionMismatch) return row.status();
      const auto model = row.ok() ? models_.find({row->tenant, row->model}) : models_.end();
      if (!row.ok() || shared_projection_key(row->tenant, row->model, row->layer) != key) {
        bad_rows_.emplace(Table::kMeta, key);
      } else if (model != models_.end()) {
        const std::uint32_t layer = row->layer;
        model->second.projections[layer] = std::make_shared<const StoredProjection>(*row);
      }
    }
    if (const auto id = quarantined_segment(key)) {
      marks_.insert(*id);
      tree_.quarantine(*id);
    }
    return {};
  });
}

Catalog::Totals CatalogImpl::totals(std::string_view tenant) const {
  std::shared_lock lock(state_);
  Totals totals;
  const auto [first, last] = models_of(tenant);
  totals.models = static_cast<std::uint64_t>(std::distance(first, last));
  if (const TenantSegments* const segments = tree_.of_tenant(tenant)) {
    const TenantSegments::Totals& sums = segments->totals();
    totals.segments = sums.segments;
    totals.stored_bytes = sums.stored_bytes;
    totals.original_bytes = sums.original_bytes;
    totals.pinned_bytes = sums.pinned_bytes;
    totals.quarantined_segments = sums.segments - sums.in_service;
  }
  totals.sessions = sessions_.count(tenant, clock_.unix_ms());
  totals.quarantined_rows = bad_rows_.size();
  return totals;
}

Catalog::Totals CatalogImpl::totals() const {
  std::shared_lock lock(state_);
  Totals totals;
  totals.models = models_.size();
  totals.segments = tree_.nodes().size();
  totals.sessions = sessions_.count(clock_.unix_ms());
  totals.stored_bytes = tree_.stored_bytes();
  totals.original_bytes = tree_.original_bytes();
  totals.pinned_bytes = tree_.pinned_bytes();
  totals.quarantined_rows = bad_rows_.size();
  totals.quarantined_segments = totals.segments - tree_.in_service();
  return totals;
}

}  // namespace precis
