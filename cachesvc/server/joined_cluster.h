// The cluster that a node has joined.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/agreed_applications.h"
#include "cachesvc/server/handler_parts.h"
#include "cachesvc/server/hot_segments.h"
#include "cachesvc/server/orphan_sweeps.h"
#include "cachesvc/server/settings_copy.h"
#include "cachesvc/server/shard_keeper.h"
#include "cachesvc/server/shared_storage.h"
#include "cachesvc/server/warm_tier.h"

namespace precis {

// In order of dependency; destroyed from last to first.
struct JoinedCluster {
  std::unique_ptr<AgreedApplications> applications;
  std::unique_ptr<SettingsCopy> settings;
  std::unique_ptr<cluster::Membership> membership;  // null: no cluster
  std::unique_ptr<ShardKeeper> keeper;              // null: the node shares no storage
  std::unique_ptr<HotSegments> hot;                 // these three are null as `keeper`
  std::unique_ptr<WarmTier> warm;
  std::unique_ptr<OrphanSweeps> sweeps;
};

struct NodeDisk {
  Store& store;
  const DiskWatch& watch;
  DiskQuota& quota;
};

// Joins the cluster of the configuration, if it has one, and lets the requests know. `listen`: the
// address in use. `shared`: null without shared storage. All arguments outlive the result.
Result<JoinedCluster> join_cluster(const Config& config, const std::string& listen,
                                   Runtime& runtime, HandlerParts& parts, SharedStorage* shared,
                                   NodeDisk disk);

}  // namespace precis
