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
  return change_settings([&]() -> Result<std::vector<SettingRow>> {
    const auto present = tenants_.find(name);
    std::optional<StoredTenant> row;
    if (present != tenants_.end()) row = present->second;
    PRECIS_TRY(change(row));
    if (present == tenants_.end() && tenants_.size() >= limits::kStoredTenantsMax) {
      return Status::out_of_space(std::to_string(tenants_.size()) +
                                  " tenants are stored, which is the limit; remove one first");
    }
    std::vector<SettingRow> rows;
    rows.push_back({Table::kMeta, stored_tenant_key(name), std::nullopt});
    if (row) rows.back().value = encode(*row);
    return rows;
  });
}

}  // namespace precis
