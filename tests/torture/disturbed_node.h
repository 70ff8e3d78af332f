// A node of ./dev torture --cluster. All that it says to others and that clients say to it passes
// through relays, and it takes the time from a clock that can be set.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/ceph_cluster.h"
#include "tests/integration/cluster_node.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/s3_server.h"
#include "tests/torture/relay.h"

namespace precis::torture {

// The storage that the nodes share: one of the two, or none.
struct NodesShare {
  const testing::CephCluster* ceph = nullptr;
  const testing::S3Server* s3 = nullptr;
};

class DisturbedNode {
 public:
  // Nodes load libraries by which their clocks can be set and their links to Ceph disturbed.
  static constexpr bool kLoads = PRECISD_LOADS;
  // Whether the libraries are installed, if nodes load any.
  static bool available();
  // `number`: of this node among those of this process.
  DisturbedNode(const testing::EtcdMembers& etcd, const NodesShare& share, std::uint32_t number,
                std::uint32_t lease_s);

  // Its own client does not pass through a relay.
  testing::Node& node() { return *node_; }
  void start();  // again
  // The address at which clients reach the node.
  const std::string& address() const { return address_; }
  // The links of clients to it, from it to each member of etcd, and from it to S3 or all of Ceph.
  Relay& clients() { return clients_; }
  std::deque<Relay>& etcd() { return etcd_; }
  Relay& storage() { return storage_; }
  // From now on, its wall clock is so much ahead of the true time. Its monotonic clock goes on.
  void set_clock(std::chrono::seconds ahead) const;

 private:
  // The beginning of a command that loads libraries before its own.
  std::vector<std::string> environment(const testing::CephCluster* ceph, std::uint32_t number);
  void forget_clock() const;

  const testing::TempDir dir_;
  Relay clients_, storage_;
  std::deque<Relay> etcd_;
  std::string address_;
  std::optional<testing::Node> node_;
};

}  // namespace precis::torture
