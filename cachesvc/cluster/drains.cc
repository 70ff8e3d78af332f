#include "cachesvc/cluster/drains.h"

#include <algorithm>

#include "cachesvc/cluster/view.h"

namespace precis::cluster {
namespace {

constexpr std::uint32_t kRetryAfterMs = 500;

}  // namespace

// It reads etcd first, because what this node knows may be old.
Status Drains::write(const std::string& node, bool on) {
  PRECIS_ASSIGN(const Etcd::Rows rows, etcd_.read(rows_prefix(cluster_)));
  const View now = read_view(cluster_, rows);
  if (!is_name(node) || now.find(node) == nullptr) {
    return Status::not_found("the cluster '" + cluster_ + "' has no node '" + node +
                             "'; precisctl cluster status lists them");
  }
  const bool others_remain = std::ranges::any_of(now.nodes, [&](const msg::ClusterNode& other) {
    return other.name != node && other.live && !other.draining;
  });
  if (on && !others_remain) {
    return Status::conflict("no other node could own the shards of '" + node +
                            "': start another one, or end the drain of one, first");
  }
  const std::string key = drain_key(cluster_, node);
  const Status written = on ? etcd_.write({key, "", 0}) : etcd_.remove(key);
  return written.code() == StatusCode::kConflict ? Status() : written;  // it is there already
}

Status Drains::set(const std::string& node, bool on) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Status::rejected("another drain is under way", kRetryAfterMs);
  Status written = write(node, on);
  const StatusCode code = written.code();
  if (code != StatusCode::kUnavailable && code != StatusCode::kTimedOut) return written;
  return Status::rejected(
      "etcd did not answer, so this may have happened or not, as precisctl cluster status will "
      "show: " +
          written.message(),
      kRetryAfterMs);
}

}  // namespace precis::cluster
