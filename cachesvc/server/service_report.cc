#include "cachesvc/server/service_report.h"

#include <algorithm>

#include "cachesvc/server/openness.h"
#include "cachesvc/server/part_settings.h"
#include "cachesvc/server/shared_storage.h"
#include "cachesvc/server/version.h"
#include "cachesvc/store/extent_store.h"
#include "precis/record_format.h"

namespace precis {

msg::ServerStatus ServiceReport::status(const std::string& tenant) const {
  msg::ServerStatus status;
  status.server = server_name();
  // A tenant must not see it.
  if (parts_.config.tenants.empty()) status.data_dir = parts_.config.data_dir;
  status.device = std::string(parts_.backend.name());
  status.rdma = parts_.transport.rdma();
  status.uptime_seconds = static_cast<double>(parts_.clock.monotonic_ns() - started_ns_) * 1e-9;
  status.memory_bytes = parts_.arena.used_bytes();
  status.memory_limit_bytes = parts_.arena.memory().size();
  fill_status(status, parts_.catalog.totals(tenant), parts_.disk_watch.health(), parts_.loss,
              parts_.config.tenants.empty());
  status.max_disk_bytes = limit_of(disk_limits(parts_.config), tenant);
  status.max_pinned_bytes = limit_of(pinned_limits(parts_.config), tenant);
  status.exposed = exposed_text(parts_.config, parts_.transport.is_open_to_hosts(),
                                parts_.transport.is_encrypted(), tenant);
  return status;
}

msg::Stats ServiceReport::stats(const std::string& tenant) const {
  msg::Stats stats = process_stats();
  add_totals(stats, parts_.catalog.totals(tenant));
  return stats;
}

msg::Stats ServiceReport::process_stats() const {
  const std::size_t waiting =
      parts_.memory.waiting() + parts_.put_room.waiting() + parts_.disk_quota.waiting();
  const std::uint64_t request_bytes = parts_.admission.message_bytes.used();
  msg::Stats stats{parts_.metrics.rows()};
  const HotTierStats hot = parts_.hot_tier.stats();
  auto add = [&](const char* name, std::uint64_t value, const char* help) {
    stats.rows.push_back({name, static_cast<double>(value), help});
  };
  // Without the block of zeros.
  const std::size_t used = parts_.arena.used_bytes() - Arena::taken_bytes(kSectionAlign);
  add("precis_memory_bytes", used, "Arena bytes in use");
  add("precis_staged_bytes", used - std::min<std::size_t>(used, hot.bytes),
      "Arena bytes held by puts and reads in progress");
  add("precis_waiting_requests", waiting, "Requests that wait for memory or for room on the disk");
  add("precis_request_bytes", request_bytes, "Bytes of requests being answered");
  add("precis_rdma", parts_.transport.rdma() == "off" ? 0 : 1,
      "1 if the service has an RDMA device for clients of other hosts");
  add("precis_turns_total", parts_.paths.turns().pieces(),
      "Turns of long requests outside the event loop: pieces of long paths, pages of lists");
  const Catalog::Totals all = parts_.catalog.totals();
  add("precis_all_stored_bytes", all.stored_bytes, "Record bytes of all segments (of all tenants)");
  add("precis_max_disk_bytes", parts_.config.max_disk_bytes,
      "The most that all tenants may store, 0 for no limit (max_disk_bytes)");
  add("precis_quarantined_rows", all.quarantined_rows,
      "Damaged catalog rows, which are out of service (of all tenants)");
  msg::ClusterState cluster;
  if (parts_.membership) cluster = parts_.membership->state();
  const auto self = std::ranges::find(cluster.nodes, cluster.node, &msg::ClusterNode::name);
  add("precis_cluster_member", cluster.name.empty() || cluster.state == "member" ? 1 : 0,
      "0 while the service is not a member of the cluster that it is configured for");
  add("precis_cluster_nodes", cluster.nodes.size(), "Nodes of the cluster, 0 without one");
  add("precis_cluster_shards", self == cluster.nodes.end() ? 0 : self->shards,
      "Shards of the cluster that the service owns");
  const bool shares = parts_.shared != nullptr;
  const Uploads::Lag lag = shares ? parts_.shared->uploads->lag() : Uploads::Lag();
  add("precis_cluster_unshared_bytes", lag.bytes,
      "Bytes stored here and not yet in the storage that the nodes share; 0 without one");
  add("precis_warm_bytes", shares ? parts_.disk_watch.stats().payload_bytes : 0,
      "Payload bytes on the node's disk if the nodes share a storage; else 0");
  add("precis_warm_limit_bytes", parts_.disk_quota.disk_limit(),
      "The most such payload that the node keeps: warm_disk_bytes, or what its disk has room for");
  add("precis_cluster_shared_failing", lag.problem.ok() ? 0 : 1,
      "1 while nothing can be written to the storage that the nodes share");
  add("precis_cluster_snapshot_failures_total", shares ? parts_.shared->problems.count() : 0,
      "Failed tries to make a snapshot of a log in S3, or to remove what the snapshot replaces");
  add("precis_cluster_lost_segments", parts_.catalog.lost_segments(),
      "Segments that only this node had when another node had changed their shard; they were lost, "
      "or removed there (since the start)");
  add("precis_cluster_orphans_removed_total", shares ? parts_.shared->orphans_removed.load() : 0,
      "Objects that no row named, and that the node has removed from the shared storage");
  add_store_rows(stats, hot, parts_.catalog.dropped_segments(), parts_.disk_watch.stats(),
                 parts_.loss.doubt, parts_.disk_watch.health());
  return stats;
}

ServiceReport::Waits ServiceReport::waits() const {
  return {{"memory", parts_.memory.waits().rows()},
          {"put room", parts_.put_room.waits().rows()},
          {"disk quota", parts_.disk_quota.waits().rows()}};
}

Status ServiceReport::serves() const {
  const StoreHealth disk = parts_.disk_watch.health();
  if (!disk.files.ok()) return Status::unavailable("files of the store are missing");
  if (disk.low) return Status::unavailable("puts are refused: the disk is short of free space");
  if (parts_.membership && parts_.membership->state().state != "member") {
    return Status::unavailable(  // without the reason, which has addresses of etcd
        "the service is no member of its cluster: see precisctl cluster status");
  }
  return {};
}

void ServiceReport::log_serving(Log& log, const std::string& address,
                                std::uint64_t descriptors_max) const {
  const Config& config = parts_.config;
  const std::string unix_path = config.resolved_listen_unix();
  const Catalog::Totals totals = parts_.catalog.totals();
  log.info("serving", {{"version", kVersion},
                       {"address", address},
                       {"data_dir", config.data_dir},
                       {"memory_bytes", parts_.arena.memory().size()},
                       {"device", std::string(parts_.backend.name())},
                       {"rdma", parts_.transport.rdma()},
                       {"tls", tls_text(config)},
                       {"unix", unix_path.empty() ? "off" : unix_path},
                       {"tenants", config.tenants.size()},
                       {"audit_log", config.audit_log.empty() ? "off" : config.audit_log},
                       {"descriptors_max", descriptors_max},
                       {"store_descriptors", kStoreDescriptorsMax},
                       {"segments", totals.segments},
                       {"quarantined_segments", totals.quarantined_segments}});
}

}  // namespace precis
