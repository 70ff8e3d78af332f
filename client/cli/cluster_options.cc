// The options of precisctl cluster.
#include "client/cli/command_parts.h"

namespace precis::cli {

void add_cluster_commands(CLI::App& app, Arguments& a) {
  CLI::App& group = add_group(app, "cluster", "The cluster of nodes that the service belongs to");
  add_watch(add_command(group, "status", "Show the nodes and what they own", a, show_cluster), a);
  add_watch(add_command(group, "map", "Show which node owns which shards", a, show_shards), a);
  CLI::App* drain = add_command(group, "drain", "Let a node own no shards, before it is stopped", a,
                                [&a](Context c) { return drain_node(c, a.drain); });
  drain->add_option("node", a.drain.node, "The node's name")->required();
  drain->add_flag("--off", a.drain.off, "Let it own shards again");
}

}  // namespace precis::cli
