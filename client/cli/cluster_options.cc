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
  CLI::App* moves = add_command(
      group, "rebalance", "Show which shards would move if nodes left or came", a, [&a](Context c) {
        const auto connect = [&a](const std::string& node) {
          return Client::connect(node, a.options);
        };
        return show_moves(c, a.rebalancing, connect);
      });
  moves
      ->add_flag("--dry-run", a.rebalancing.dry_run,
                 "Needed: nodes move shards by themselves, so nothing else is left to do")
      ->required();
  moves->add_option("--without", a.rebalancing.without, "As if this node were drained; repeatable")
      ->type_name("NODE");
  moves
      ->add_option("--with", a.rebalancing.with,
                   "As if a node of this name and weight came, or had this weight; repeatable")
      ->type_name("NODE=WEIGHT");
}

}  // namespace precis::cli
