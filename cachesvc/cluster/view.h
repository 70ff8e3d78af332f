// Reads the rows in etcd about a cluster: its nodes, and which of them owns each shard. Pure.
//
// The rows of the cluster NAME are below "precis/NAME/":
//   nodes/NODE    a live node, with its lease: JSON {"address", "version", "weight", "instance"}
//   drains/NODE   the node shall own no shards; the value is empty
//   owners        JSON {"format": 1, "epoch": N, "nodes": [NODE, ...], "owners": OWNERS}: OWNERS is
//                 base64 of one u16 a shard, little endian, an index into nodes or 0xffff for
//                 nobody. The epoch grows with every table; without one, it is the row's revision.
//   agreed        changes with every row that all nodes share (agreed_rows.h)
//   forks         JSON {"format": 1, "forks": [[BLOCK, BLOCKS], ...]}: the digest in base64, and
//                 the number (shards.h)
//
// Other nodes and other programs write these rows, so each is checked. A row that is not as
// described is left out and named. All versions that share a format must place shards alike
// (precis/placement.h); otherwise they would overwrite each other's tables.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/cluster/etcd.h"
#include "precis/limits.h"
#include "precis/messages.h"
#include "precis/shards.h"

namespace precis::cluster {

// Names of clusters and nodes: 1 to 63 letters, digits, dots, hyphens or underscores.
bool is_name(std::string_view name);
// Printable ASCII, as addresses and versions must be.
bool is_plain(std::string_view text);

inline constexpr std::uint32_t kWeightMax = 1'000'000;
// Live nodes. The table may name as many others that are gone.
inline constexpr std::size_t kLiveNodesMax = limits::kClusterNodesMax / 2;

// A node, as it describes itself.
struct NodeRow {
  std::string address;  // HOST:PORT for clients
  std::string version;
  std::uint32_t weight = 0;  // 1 to kWeightMax
  std::string instance;      // differs whenever a node joins
  std::string storage = {};  // that it shares, as Membership::Settings; empty: not known
};

std::string rows_prefix(const std::string& cluster);
std::string agreed_key(const std::string& cluster);
std::string node_key(const std::string& cluster, const std::string& node);
std::string drain_key(const std::string& cluster, const std::string& node);
std::string to_json(const NodeRow& node);

struct View {
  std::uint64_t revision = 0;           // of etcd
  std::uint64_t owners_revision = 0;    // 0: there is no table of owners
  std::uint64_t owners_epoch = 0;       // of that table
  Status problem;                       // names the first row that could not be read
  bool owners_known = true;             // false: there is a table, but it could not be read
  bool has_left = false;                // the table names a node that is not live
  std::vector<msg::ClusterNode> nodes;  // by name: live, or in the table, or drained
  std::set<std::string> instances;      // of the live nodes
  std::vector<std::uint32_t> owners;    // indices into nodes, or kNobody; empty without a table

  // The storage of each live node, by its name; empty: it is not known.
  std::map<std::string, std::string> storages;

  std::uint64_t agreed_revision = 0;  // of the row "agreed"; 0: there is none
  std::string agreed;                 // its value
  std::uint64_t forks_revision = 0;   // 0: there is no list of forks
  bool forks_known = true;            // false: there is one, but it could not be read
  std::shared_ptr<const Forks> forks = std::make_shared<const Forks>();  // shared with requests

  const msg::ClusterNode* find(const std::string& node) const;
};
// The problem is kUnsupported if a row has another format, else kCorruption.
View read_view(const std::string& cluster, const Etcd::Rows& rows);

// Replaces the list of that revision.
Etcd::Row forks_row(const std::string& cluster, const Forks& forks, std::uint64_t revision);

// The addresses of up to `count` live nodes, other than `node`, that own shards. Each has its own
// place in the order of a key (rendezvous hashing).
std::vector<std::string> others_for(const View& view, const std::string& node,
                                    const std::string& key, std::size_t count);

// kConflict if a live node, other than `node`, shares another storage than this.
Status check_storage(const View& view, const std::string& node, const std::string& storage);

// Says of each shard whether the node owns it; empty without a table.
std::vector<bool> owned_shards(const View& view, const std::string& node);
// kMoved if the node does not own the shard; the message names who does.
Status check_owned(const View& view, std::uint32_t shard, const std::string& node);

// The row of owners that the cluster should have, if it differs from the one it has, or that has an
// epoch of less than `least_epoch`. Absent without live nodes, and if the present table is not
// known.
std::optional<Etcd::Row> better_owners(const std::string& cluster, const View& view,
                                       std::uint64_t least_epoch = 0);

}  // namespace precis::cluster
