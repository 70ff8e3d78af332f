#include "cachesvc/server/shared_storage.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "cachesvc/net/address.h"
#include "cachesvc/server/agreed_applications.h"
#include "cachesvc/shared/rados_tier.h"
#include "cachesvc/shared/s3_tier.h"
#include "cachesvc/shared/tiered_store.h"

namespace precis {
namespace {

constexpr unsigned kCopiers = 8, kTidiers = 4;  // they wait for the shared storage
// Rows of logs in S3 take at most 1/kRowsShare of what may wait to be copied.
constexpr std::uint64_t kRowsShare = 4;

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

Result<std::unique_ptr<SharedTier>> connect_ceph(const Config& config) {
  RadosSettings settings;
  settings.ceph_conf = config.cluster_ceph_conf;
  settings.user = config.cluster_ceph_user;
  settings.pool = config.cluster_ceph_pool;
  settings.space = config.cluster_name;
  auto tier = connect_rados(settings);
  if (!tier.ok()) return tier.status().with_context("cluster_ceph_conf");
  return tier;
}

bool is_here(const std::string& authority) {
  return is_loopback(authority) || is_loopback(authority + ":80");
}

Result<std::unique_ptr<SharedTier>> connect_bucket(const Config& config, Runtime& runtime, Log& log,
                                                   std::uint64_t rows_bytes_max,
                                                   SnapshotProblems& problems) {
  S3Settings settings;
  settings.url = config.cluster_s3;
  settings.keys_file = config.cluster_s3_keys;
  settings.region = config.cluster_s3_region;
  settings.ca = config.cluster_s3_ca;
  settings.space = config.cluster_name;
  const auto place = parse_s3_url(settings.url);
  if (place.ok() && !place->encrypted && !is_here(place->authority)) {
    log.warn("all that is stored goes to S3 unencrypted: use https in cluster_s3",
             {{"cluster_s3", config.cluster_s3}});
  }
  LogTierSettings logs;
  logs.rows_bytes_max = rows_bytes_max;
  logs.tidier = runtime.make_executor("s3-tidy", kTidiers);
  logs.tidied = [&problems](const std::string& name, const Status& status) {
    problems.note(name, status);
  };
  auto tier = connect_s3(settings, std::move(logs));
  if (!tier.ok()) return tier.status().with_context("cluster_s3");
  return tier;
}

}  // namespace

Result<std::unique_ptr<SharedStorage>> SharedStorage::connect(const Config& config,
                                                              Runtime& runtime, Log& log,
                                                              std::uint64_t bytes_max) {
  const bool has_ceph = !config.cluster_ceph_conf.empty(), has_s3 = !config.cluster_s3.empty();
  if (!has_ceph && !has_s3) return std::unique_ptr<SharedStorage>();
  if (config.cluster_etcd.empty()) {
    return Status::invalid(std::string(has_ceph ? "cluster_ceph_conf" : "cluster_s3") +
                           " needs cluster_etcd: only a cluster shares a storage");
  }
  if (has_ceph && has_s3) {
    return Status::invalid("cluster_s3 and cluster_ceph_conf exclude each other: set one of them");
  }
  auto shared = std::make_unique<SharedStorage>(log, runtime.clock());
  auto tier = has_ceph
                  ? connect_ceph(config)
                  : connect_bucket(config, runtime, log, bytes_max / kRowsShare, shared->problems);
  PRECIS_TRY(tier.status());
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
  auto keeper = std::make_unique<ShardKeeper>(ShardKeeper::Parts{
      *parts.membership, *tier, *uploads, parts.catalog, std::move(disk), runtime, parts.log,
      forget, [&parts] { parts.agreed_applications->apply_again(); },
      std::chrono::seconds(config.cluster_lease_s)});
  parts.uploads = uploads.get();
  parts.shards = keeper.get();
  return keeper;
}

}  // namespace precis
