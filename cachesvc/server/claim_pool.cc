#include "cachesvc/server/claim_pool.h"

#include <span>

namespace precis {
namespace {

constexpr char kClusterKey[] = "cluster";  // of the common row with the id

}  // namespace

Status claim_pool(SharedTier& tier, const std::string& cluster_id) {
  if (cluster_id.empty()) return Status::unavailable("the cluster has no id yet");
  std::string found;
  PRECIS_TRY(tier.scan_common([&](std::string_view key, Bytes value) -> Status {
    if (key == kClusterKey) {
      found.assign(reinterpret_cast<const char*>(value.data()), value.size());
    }
    return {};
  }));
  if (found == cluster_id) return {};
  if (!found.empty()) {
    return Status::version(
        "the shared storage has the data of another cluster of this name: use another "
        "cluster_name, pool or bucket. If it is this cluster before etcd and all nodes lost their "
        "data, remove the id that is stored there, and it goes on with what the storage has: in "
        "Ceph the object 'common' of the pool's name space, in S3 all objects below "
        "precis-NAME/log/common/");
  }
  SharedBatch mine;
  const Bytes bytes = std::as_bytes(std::span(cluster_id));
  mine.puts.emplace_back(kClusterKey, std::vector<std::byte>(bytes.begin(), bytes.end()));
  // If another cluster does the same at this moment, one of them finds the other's id next time.
  return tier.write_common(mine);
}

}  // namespace precis
