#include "cachesvc/server/shared_storage.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "cachesvc/shared/rados_tier.h"
#include "cachesvc/shared/tiered_store.h"

namespace precis {
namespace {

constexpr unsigned kCopiers = 8;  // they wait for the shared storage

constexpr const char* kDiskKey = "store.disk";  // no backup has it (is_stores_own())

// The name of the local store, which is made at its first use.
Result<std::string> name_disk(Store& store, Runtime& runtime) {
  const auto known = store.get(Table::kMeta, kDiskKey);
  if (known.ok()) return std::string(reinterpret_cast<const char*>(known->data()), known->size());
  if (known.status().code() != StatusCode::kNotFound) return known.status();
  std::string name =
      std::to_string(runtime.random()) + "-" + std::to_string(runtime.clock().unix_ms());
  PRECIS_TRY(store.write({{{Table::kMeta, kDiskKey, std::as_bytes(std::span(name))}}, {}},
                         Durability::kFsync));
  return name;
}

}  // namespace

Result<std::unique_ptr<SharedStorage>> SharedStorage::connect(const Config& config,
                                                              Runtime& runtime,
                                                              std::uint64_t bytes_max) {
  if (config.cluster_ceph_conf.empty()) return std::unique_ptr<SharedStorage>();
  if (config.cluster_etcd.empty()) {
    return Status::invalid("cluster_ceph_conf needs cluster_etcd: only a cluster shares a storage");
  }
  RadosSettings settings;
  settings.ceph_conf = config.cluster_ceph_conf;
  settings.user = config.cluster_ceph_user;
  settings.pool = config.cluster_ceph_pool;
  settings.space = config.cluster_name;
  auto shared = std::make_unique<SharedStorage>();
  auto tier = connect_rados(settings);
  if (!tier.ok()) return tier.status().with_context("cluster_ceph_conf");
  shared->tier = std::move(tier).value();
  auto threads = runtime.make_executor("uploads", kCopiers);
  shared->uploads =
      std::make_unique<Uploads>(*shared->tier, runtime.clock(), std::move(threads), bytes_max);
  return shared;
}

std::unique_ptr<Store> SharedStorage::behind(std::unique_ptr<Store> local) const {
  return make_tiered_store(std::move(local), *tier, *uploads);
}

Result<std::unique_ptr<ShardKeeper>> SharedStorage::keep_shards(const Config& config, Store& store,
                                                                Runtime& runtime,
                                                                HandlerParts& parts) const {
  PRECIS_ASSIGN(std::string disk, name_disk(store, runtime));
  const auto forget = [&parts](std::vector<SegmentId> gone) {
    parts.loop.post([&parts, gone = std::move(gone)] {
      for (const SegmentId& id : gone) parts.hot_tier.erase(id);
    });
  };
  auto keeper = std::make_unique<ShardKeeper>(
      ShardKeeper::Parts{*parts.membership, *tier, *uploads, parts.catalog, std::move(disk),
                         runtime, parts.log, forget, std::chrono::seconds(config.cluster_lease_s)});
  parts.uploads = uploads.get();
  parts.shards = keeper.get();
  return keeper;
}

}  // namespace precis
