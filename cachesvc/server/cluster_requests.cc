#include "cachesvc/server/cluster_requests.h"

#include <utility>

#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/shard_keeper.h"
#include "precis/block_digest.h"

namespace precis {

Task<Answer> ClusterRequests::on(msg::ShowCluster) {
  const cluster::Membership* const membership = caller_.parts.membership;
  msg::ClusterState state = membership == nullptr ? msg::ClusterState{} : membership->state();
  if (!state.error.empty() && caller_.tenant.role < Role::kAdmin) {
    state.error = "admins see it here, and the log has it";  // it has addresses of etcd
  }
  if (membership != nullptr) {
    state.space = shard_space(caller_.tenant.name, caller_.tenant.salt);
  }
  if (caller_.parts.shards != nullptr) {
    const ShardKeeper::State shards = caller_.parts.shards->state();
    const Uploads::Lag lag = caller_.parts.uploads->lag();
    state.shared = true;
    state.loading = shards.loading;
    state.unshared_bytes = lag.bytes;
    state.shared_error = (shards.problem.ok() ? lag.problem : shards.problem).message();
    if (caller_.tenant.role < Role::kAdmin) {
      state.unshared_bytes = 0;
      if (!state.shared_error.empty())
        state.shared_error = "admins see it here, and the log has it";
    }
  }
  co_return msg::ReplyBody(std::move(state));
}

Task<Answer> ClusterRequests::on(msg::DrainNode request) {
  cluster::Membership* const membership = caller_.parts.membership;
  if (membership == nullptr) {
    co_return Status::unsupported(
        "this service is in no cluster: set cluster_etcd in its configuration");
  }
  const auto drain = [&] { return membership->drain(request.node, request.on); };
  PRECIS_CO_ASSIGN(auto state, co_await caller_.changed(drain));
  caller_.note({"DrainNode", "node drained", request.node, request.on ? "on" : "off", "",
                request.on ? "it shall own no shards" : "it owns shards again"});
  co_return msg::ReplyBody(std::move(state));
}

}  // namespace precis
