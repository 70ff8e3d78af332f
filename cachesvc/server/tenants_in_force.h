// The tenants in force: those of the configuration, then the stored ones of other names. Gives a
// new list to the parts of the running service that tenants concern. Loop thread only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/peers.h"
#include "cachesvc/server/tenants.h"
#include "cachesvc/server/wrong_proofs.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

TenantConfig config_of(const StoredTenant& row);

class TenantsInForce {
 public:
  // All outlive it.
  struct Parts {
    Config& config;  // in force; its tenants are the list
    Catalog& catalog;
    Log& log;
    Tenants& tenants;
    Admission& admission;
    PutRoom& put_room;
    const HotTier& hot_tier;
    DiskQuota& disk_quota;
    WrongProofs& wrong_proofs;
    Peers& peers;
    // Ends the streams of a tenant's events, because its tokens changed or it was removed.
    std::function<void(const std::string& tenant)> end_streams;
    EventLog& events;
    const Metrics& metrics;
  };
  explicit TenantsInForce(const Parts& parts) : parts_(parts) {}

  // Returns the list for these tenants of a configuration.
  std::vector<TenantConfig> joined(std::vector<TenantConfig> configured) const;
  // Call it when the list in config.tenants has changed. New weights and limits apply at once.
  // Clients that may not stay (Tenants::may_stay()) are disconnected.
  void apply();
  // Call it when the stored tenants have changed: joins and applies them.
  void stored_changed();
  // Warns about stored tenants that are not in force, and if only stored ones are.
  void warn() const;

  const std::vector<TenantConfig>& list() const { return parts_.config.tenants; }
  const TenantConfig* find(std::string_view name) const;  // null: there is none
  // `row`: of a stored tenant; null for one of the configuration.
  msg::TenantRow describe(const TenantConfig& tenant, const StoredTenant* row) const;

 private:
  const Parts parts_;
  std::vector<TenantConfig> applied_;
};

}  // namespace precis
