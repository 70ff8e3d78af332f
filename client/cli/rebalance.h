// precisctl cluster rebalance: which shards would move if nodes left or came. The nodes of a
// cluster make the table of owners by themselves; this computes the same table.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/commands.h"

namespace precis::cli {

struct Rebalancing {
  bool dry_run = false;
  std::vector<std::string> without;  // nodes that would own nothing
  std::vector<std::string> with;     // NAME=WEIGHT
};

struct ShardMoves {
  struct Node {
    std::string name, address;
    std::uint32_t weight = 0;  // afterwards; 0: it owns nothing
    std::uint32_t shards = 0, shards_after = 0;
  };
  struct Move {
    std::optional<std::size_t> from;  // an index into `nodes`; none: nobody owns them
    std::size_t to = 0;
    std::uint32_t shards = 0;
    // Their part of the bytes that `from` stores, if its shards are equally large.
    std::optional<std::uint64_t> bytes = {};
  };
  std::vector<Node> nodes;  // by name
  std::vector<Move> moves;  // by name of both nodes
  bool shared = false;      // the nodes share a storage

  std::uint32_t shards() const;
  std::optional<std::uint64_t> bytes() const;
};

// kNotFound for a node that is not there, kInvalidArgument for a wrong NAME=WEIGHT, kConflict if no
// node could own the shards.
Result<ShardMoves> planned_moves(const msg::ClusterState& state, const Rebalancing& change);
// For people.
std::string moves_text(const ShardMoves& moves, std::size_t columns);

// Connects to a node, to ask it how much it stores.
using Connect = std::function<Result<std::shared_ptr<Client>>(const std::string& address)>;
Status show_moves(Context context, const Rebalancing& change, const Connect& connect);

}  // namespace precis::cli
