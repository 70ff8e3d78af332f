#include "cachesvc/catalog/catalog_projections.h"

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/projection_row.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr std::size_t kRowsPerTenantMax = 8192;
constexpr std::uint64_t kDiskShare = 4;  // they take at most a fourth of what the disk keeps

std::string local_key(const StoredProjection& row, bool is_gram) {
  return payload_key(projection_id(row.tenant, row.model, is_gram), row.layer);
}

// The content decides the name, so that an object never changes.
std::string shared_name(const StoredProjection& row, bool is_gram) {
  return "projection-" + projection_id(row.tenant, row.model, is_gram).hex() + "-" +
         std::to_string(row.layer) + "-" + (is_gram ? row.grams : row.weights).hex();
}

}  // namespace

// kInvalidArgument if the layer has other weights. Ignores the Gram matrices: their last bits
// depend on the machine that computed them.
Status CatalogProjections::check_projection(const StoredProjection& row) const {
  PRECIS_ASSIGN(const Model* const model, known_model(row.tenant, row.model));
  const auto known = model->projections.find(row.layer);
  if (known == model->projections.end()) return {};
  const StoredProjection& other = *known->second;
  if (other.weights == row.weights && other.width == row.width && other.dtype == row.dtype) {
    return {};
  }
  return Status::invalid("layer " + std::to_string(row.layer) + " of model '" + model->spec.name +
                         "' has another output projection (SHA-256 " + other.weights.hex() +
                         ", not " + row.weights.hex() +
                         "): other weights make another model, so register it with another "
                         "revision");
}

// etcd has the rows of all tenants, and each node reads them.
Status CatalogProjections::check_projection_room(const StoredProjection& row) const {
  const auto [first, last] = models_of(row.tenant);
  std::size_t rows = 0;
  for (auto model = first; model != last; ++model) rows += model->second.projections.size();
  if (rows < kRowsPerTenantMax) return {};
  return Status::rejected("tenant '" + row.tenant + "' has " + std::to_string(rows) +
                          " output projections, which is the limit of a cluster; remove a model "
                          "(precisctl model rm)");
}

Status CatalogProjections::share_projection(const StoredProjection& row, Bytes weights,
                                            Bytes grams) {
  if (!in_shards()) return {};
  {
    std::lock_guard changing(changes_);
    PRECIS_TRY(check_projection(row));
  }
  PRECIS_TRY(store_.write_shared(shared_name(row, false), weights));
  return store_.write_shared(shared_name(row, true), grams);
}

Status CatalogProjections::add_projection(const StoredProjection& row, Bytes weights, Bytes grams) {
  if (in_shards()) return name_projection(row);
  std::lock_guard changing(changes_);
  PRECIS_TRY(check_projection(row));
  Change change;
  change.put_borrowed(Table::kPayload, local_key(row, false), weights);
  change.put_borrowed(Table::kPayload, local_key(row, true), grams);
  change.put(Table::kProjections, projection_key(row.tenant, row.model, row.layer), encode(row));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  models_.at({row.tenant, row.model}).projections[row.layer] =
      std::make_shared<const StoredProjection>(row);
  return {};
}

// Another machine's Gram matrices replace the present ones, which stay for readers.
Status CatalogProjections::name_projection(const StoredProjection& row) {
  Status refused;
  const Status named = change_settings([&]() -> Result<std::vector<SettingRow>> {
    refused = check_projection(row);
    PRECIS_TRY(refused);
    const auto& known = models_.at({row.tenant, row.model}).projections;
    const auto same = known.find(row.layer);
    std::vector<SettingRow> rows;
    if (same != known.end() && *same->second == row) return rows;
    if (same == known.end()) refused = check_projection_room(row);
    PRECIS_TRY(refused);
    rows.push_back(
        {Table::kMeta, shared_projection_key(row.tenant, row.model, row.layer), encode(row)});
    return rows;
  });
  // No row names these objects.
  if (!refused.ok()) remove_shared_bytes(store_, {std::make_shared<const StoredProjection>(row)});
  return named;
}

void CatalogProjections::remove_shared_bytes(Store& store, const std::vector<Projection>& rows) {
  for (const Projection& row : rows) {
    const Status removed = store.remove_shared(shared_name(*row, false), row->weights_bytes);
    if (removed.code() == StatusCode::kUnavailable) return;  // so will be the others
    (void)store.remove_shared(shared_name(*row, true), row->grams_bytes);
  }
}

Result<Catalog::Projection> CatalogProjections::projection(std::string_view tenant,
                                                           const Digest& model,
                                                           std::uint32_t layer) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const known, known_model(tenant, model));
  const auto found = known->projections.find(layer);
  if (found != known->projections.end()) return found->second;
  return Status::not_found("layer " + std::to_string(layer) + " of model '" + known->spec.name +
                           "' has no output projection; register the model with its o_proj");
}

Status CatalogProjections::read_projection(const StoredProjection& row, ProjectionPart part,
                                           MutableBytes into) {
  const bool is_gram = part == ProjectionPart::kGrams;
  const Digest& wanted = is_gram ? row.grams : row.weights;
  Status status = store_.read_into(local_key(row, is_gram), into);
  if (status.ok() && sha256(into) == wanted) return {};
  if (in_shards()) {
    status = store_.read_shared(shared_name(row, is_gram), into);
    if (status.ok() && sha256(into) == wanted) {
      keep_projection(row, is_gram, into);
      return {};
    }
  }
  const bool damaged = status.ok() || status.code() == StatusCode::kNotFound ||
                       status.code() == StatusCode::kCorruption;
  if (!damaged) return status;
  return Status::corruption("the stored output projection of layer " + std::to_string(row.layer) +
                            " failed its check; push it again");
}

// The bytes of all projections that the local store has.
std::uint64_t CatalogProjections::kept_projection_bytes() const {
  std::shared_lock lock(state_);
  std::uint64_t bytes = 0;
  for (const auto& [key, model] : models_) {
    if (model.projections.empty()) continue;
    for (const bool is_gram : {false, true}) {
      bytes += store_.held_bytes(segment_key(projection_id(key.first, key.second, is_gram)));
    }
  }
  return bytes;
}

// If it fails, the next read reads from the shared storage again.
void CatalogProjections::keep_projection(const StoredProjection& row, bool is_gram, Bytes bytes) {
  std::lock_guard changing(projection_bytes_);
  const auto known = projection(row.tenant, row.model, row.layer);
  if (!known.ok() || **known != row) return;
  // Segments need the rest of the disk.
  const std::uint64_t most = local_bytes_max_;
  if (store_.payload_bytes() + bytes.size() > most) return;
  if (kept_projection_bytes() + bytes.size() > most / kDiskShare) return;
  Change change;
  change.put_borrowed(Table::kPayload, local_key(row, is_gram), bytes);
  (void)store_.write(change.batch(), Durability::kMemory);
}

}  // namespace precis
