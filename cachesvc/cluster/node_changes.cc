#include "cachesvc/cluster/node_changes.h"

namespace precis::cluster {

void log_changes(const View& before, const View& after, const std::string& node, Log& log) {
  const auto lives = [](const View& in, const std::string& name) {
    const msg::ClusterNode* const found = in.find(name);
    return found != nullptr && found->live;
  };
  for (const msg::ClusterNode& each : after.nodes) {
    if (each.live && !lives(before, each.name)) {
      log.info("node came", {{"node", each.name}, {"address", each.address}});
    }
  }
  for (const msg::ClusterNode& each : before.nodes) {
    if (each.live && !lives(after, each.name)) log.info("node is gone", {{"node", each.name}});
  }
  const auto shards = [&node](const View& in) {
    const msg::ClusterNode* const me = in.find(node);
    return me == nullptr ? 0 : me->shards;
  };
  if (shards(after) != shards(before)) log.info("owns shards", {{"count", shards(after)}});
}

}  // namespace precis::cluster
