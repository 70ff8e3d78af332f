#include "cachesvc/server/joined_cluster.h"

#include <algorithm>

#include "cachesvc/net/address.h"
#include "cachesvc/server/tenants_in_force.h"
#include "cachesvc/server/version.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

void warn_if_plain(const Config& config, Log& log) {
  const auto members = cluster::parse_etcd_urls(config.cluster_etcd);
  const bool is_plain = members.ok() && std::ranges::any_of(*members, [](const auto& member) {
                          return !member.encrypted && !is_loopback(member.authority);
                        });
  if (!is_plain) return;
  log.warn("the tokens of stored tenants go to etcd unencrypted: use https in cluster_etcd",
           {{"cluster_etcd", config.cluster_etcd}});
}

Task<Status> catch_up(const HandlerParts& parts, Owner owner) {
  cluster::AgreedRows& agreed = parts.membership->agreed();
  const std::uint64_t asked = agreed.ask();
  co_return co_await run_on(parts.changes, parts.loop, owner,
                            [&] { return agreed.catch_up(asked); });
}

}  // namespace

Result<JoinedCluster> join_cluster(const Config& config, const std::string& listen,
                                   Runtime& runtime, HandlerParts& parts, SharedStorage* shared,
                                   NodeDisk disk) {
  JoinedCluster cluster;
  if (config.cluster_etcd.empty()) return cluster;
  const auto taken = [&parts](const SettingsCopy::Taken& what) {
    parts.loop.post([&parts, what] {
      if (what.tenants) parts.in_force.stored_changed();
      for (const auto& [tenant, model] : what.models_erased) {
        for (const bool is_gram : {false, true}) {
          parts.hot_tier.erase(projection_id(tenant, model, is_gram));
        }
      }
    });
  };
  cluster.applications = std::make_unique<AgreedApplications>(parts);
  cluster.settings = std::make_unique<SettingsCopy>(parts.catalog, *cluster.applications,
                                                    std::to_string(runtime.random()), taken);
  cluster.settings->begin();
  warn_if_plain(config, parts.log);
  PRECIS_ASSIGN(cluster.membership,
                cluster::join(config, listen, kVersion, runtime, parts.log, *cluster.settings));
  cluster.settings->agree_through(cluster.membership->agreed());
  parts.membership = cluster.membership.get();
  parts.put_path.catch_up_by([&parts](Owner owner) { return catch_up(parts, std::move(owner)); });
  parts.agreed_applications = cluster.applications.get();
  if (shared != nullptr) {
    PRECIS_ASSIGN(cluster.keeper, shared->keep_shards(config, disk.store, runtime, parts));
    cluster.hot = std::make_unique<HotSegments>(parts.clock, config.cluster_hot_bytes_per_s);
    parts.hot = cluster.hot.get();
    cluster.warm = std::make_unique<WarmTier>(
        WarmTier::Parts{config, runtime, parts.loop, *cluster.membership, disk.store, parts.catalog,
                        disk.watch, disk.quota, parts.metrics, parts.log},
        Eviction::Parts{*shared->tier, parts.catalog, runtime, cluster.keeper->disk()});
    cluster.sweeps = std::make_unique<OrphanSweeps>(
        OrphanSweeps::Parts{*shared->tier, *shared->uploads, parts.catalog, runtime, parts.loop,
                            parts.log, shared->orphans_removed});
  }
  return cluster;
}

}  // namespace precis
