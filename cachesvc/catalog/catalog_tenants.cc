// Stored tenants.
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {

std::vector<StoredTenant> CatalogTenants::stored_tenants() const {
  std::shared_lock lock(state_);
  std::vector<StoredTenant> rows;
  for (const auto& [name, row] : tenants_) rows.push_back(row);
  return rows;
}

Status CatalogTenants::change_tenant(const std::string& name, const TenantChange& change) {
  std::lock_guard changing(changes_);
  const auto present = tenants_.find(name);
  std::optional<StoredTenant> row;
  if (present != tenants_.end()) row = present->second;
  PRECIS_TRY(change(row));
  if (present == tenants_.end() && tenants_.size() >= limits::kStoredTenantsMax) {
    return Status::out_of_space(std::to_string(tenants_.size()) +
                                " tenants are stored, which is the limit; remove one first");
  }
  Change write_it;
  const std::string key = stored_tenant_key(name);
  if (row) {
    write_it.put(Table::kMeta, key, encode(*row));
  } else {
    write_it.erase(Table::kMeta, key);
  }
  PRECIS_TRY(write(std::move(write_it), Durability::kFsync));
  std::unique_lock lock(state_);
  if (row) {
    tenants_[name] = std::move(*row);
  } else {
    tenants_.erase(name);
  }
  return {};
}

}  // namespace precis
