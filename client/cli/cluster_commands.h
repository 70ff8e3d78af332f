// precisctl cluster.
#pragma once

#include <string>

#include "client/cli/commands.h"

namespace precis::cli {

struct NodeDrain {
  std::string node;
  bool off = false;
};

Status show_cluster(Context context);
// Which node owns which shards.
Status show_shards(Context context);
Status drain_node(Context context, const NodeDrain& drain);

// kMoved if the service is configured for a cluster and no member of it now.
Status check_member(const msg::ClusterState& state);

// For people. `columns`: the terminal's width, 0 if unknown.
std::string cluster_text(const msg::ClusterState& state, std::size_t columns);
std::string shards_text(const msg::ClusterState& state, std::size_t columns);

}  // namespace precis::cli
