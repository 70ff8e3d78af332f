// A node's membership in a cluster (docs/design/cluster.md): it keeps a lease in etcd, learns which
// nodes there are, and takes part in deciding which node owns which shard.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/cluster/agreed_rows.h"
#include "cachesvc/cluster/etcd.h"
#include "cachesvc/cluster/fork_finder.h"
#include "precis/messages.h"
#include "precis/shards.h"

namespace precis::cluster {

class Membership {
 public:
  struct Settings {
    std::vector<HttpEndpoint> etcd;
    std::shared_ptr<const TlsContext> tls;  // to etcd; null: none of its members has https
    std::string cluster, node;
    std::string address;  // HOST:PORT for clients
    std::string version;
    std::uint32_t weight = 0;
    std::chrono::seconds lease{};
    std::string storage = {};  // names what the nodes share; empty: it is not compared
  };

  // Joins on a thread of its own, and joins again whenever the lease is lost. The node becomes a
  // member once it has the rows that all nodes share. `copy`: its copy of those rows; it outlives
  // the membership.
  Membership(const Settings& settings, Runtime& runtime, Log& log, AgreedCopy& copy);
  // Leaves, so that others take over at once.
  ~Membership();

  // Any thread. Returns what is known now.
  msg::ClusterState state() const;
  // Any thread. kMoved if this node does not own the shard, or is no member now.
  Status check_owner(std::uint32_t shard) const;
  // Any thread. Never null.
  std::shared_ptr<const Forks> forks() const;
  // Any thread. Call it for every put. If too much is put beneath one block, it becomes a fork.
  void note_put(const std::string& tenant, const ForkFinder::Put& put);
  // [blocking] Any thread. Says whether a node shall own no shards. kNotFound if there is neither
  // such a node nor a drain of it; kConflict if no other node could own shards; kRejected if etcd
  // does not answer now.
  Result<msg::ClusterState> drain(const std::string& node, bool on);

  // Any thread. The rows that all nodes share.
  AgreedRows& agreed();

  // For the storage that nodes share (shard_keeper.h).
  struct Owned {
    bool is_member = false;
    std::uint64_t epoch = 0;          // of the table of owners, which grows with every table
    std::string instance;             // of this node, since it last joined
    std::vector<bool> shards;         // those that this node owns; empty: no table is known
    std::set<std::string> instances;  // of the live nodes
  };
  // Any thread.
  Owned owned() const;
  // Any thread. Addresses of up to `count` other nodes that own shards: for one key always the same
  // ones, as long as they are live.
  std::vector<std::string> others_for(const std::string& key, std::size_t count) const;
  // Any thread. The next table gets at least this epoch, and is written soon.
  void raise_epoch(std::uint64_t least);
  // Any thread. Whether this node has not joined again since it had this instance.
  bool is_instance(std::string_view instance) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// kInvalidArgument with the problems of the settings of a cluster, one per line.
Status check_config(const Config& config);
// Joins the cluster of the configuration; null if it has none. `listen`: the address in use.
// `copy`: as Membership's. kInvalidArgument as check_config().
Result<std::unique_ptr<Membership>> join(const Config& config, const std::string& listen,
                                         const std::string& version, Runtime& runtime, Log& log,
                                         AgreedCopy& copy);

}  // namespace precis::cluster
