// The cluster of ./dev torture --cluster, and its faults, one at a time. After each, the cluster
// works again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/s3_server.h"
#include "tests/torture/disturbed_node.h"

namespace precis::torture {

// The storage that the nodes share.
enum class Storage : std::uint8_t { kNothing, kCeph, kS3 };

enum class Fault : std::uint8_t {
  kKill,
  kRestart,
  kStand,  // a node stands still
  kDrain,
  kEtcdKill,  // of the leader
  kOsdKill,
  kS3Kill,     // all of it, at once; it starts again on its data
  kS3Stand,    // all of it stands still
  kPartition,  // nothing passes one of the kinds of links of a node, one way or both
  kSlowLink,
  kClockStep,
};
inline constexpr std::size_t kFaults = 11;
// The kinds of links of a node.
enum class Link : std::uint8_t { kClients, kEtcd, kStorage };
inline constexpr std::size_t kLinks = 3;

class ClusterFaults {
 public:
  // Three nodes and three members of etcd. A Ceph has three OSDs. `only_kills`: the only faults are
  // kills of nodes. `tell` gets the next step: the start of the nodes, and each fault.
  ClusterFaults(Storage storage, bool only_kills, std::uint32_t seed,
                std::function<void(const std::string& what)> tell);

  // The addresses at which clients reach the nodes, in the form of Client::connect().
  std::string addresses() const;
  // Waits until each node knows that all own shards. kTimedOut names one that does not.
  Status settle();
  // Makes the next fault, ends it, and settles. Its waits are short once `over` is true.
  Result<Fault> next(const std::atomic<bool>& over);
  // Whether each kind of fault has been made, partitions and slow links with each kind of link.
  bool had_all() const { return rounds_ > 1 || (rounds_ == 1 && deck_.empty()); }
  std::uint64_t count(Fault fault) const { return counts_[static_cast<std::size_t>(fault)]; }
  std::uint64_t partitions(Link link) const { return partitions_[static_cast<std::size_t>(link)]; }

 private:
  struct Card {
    Fault fault;
    Link link = Link::kClients;  // of a partition or a slow link
  };
  static std::string text_of(const Card& card, const std::string& node);
  std::vector<Card> new_deck();
  Card draw();
  Status make(const Card& card, DisturbedNode& node);
  Status drain(testing::Node& node);
  Status partition(Link link, DisturbedNode& node);
  void slow(Link link, DisturbedNode& node);
  std::vector<Relay*> relays(Link link, DisturbedNode& node);
  void kill_osd();
  void kill_s3();
  void stop_s3();
  void kill_etcd_leader();
  void set_clock(DisturbedNode& node);
  void pause(double leases) const;
  double some_leases();
  double fraction() { return static_cast<double>(random_() % 1000) / 1000; }

  const bool only_kills_;
  std::mt19937 random_;
  const std::function<void(const std::string& what)> tell_;
  std::optional<testing::CephCluster> ceph_;
  std::optional<testing::S3Server> s3_;
  testing::EtcdMembers etcd_{3};
  std::deque<DisturbedNode> nodes_;
  std::vector<Card> deck_;  // the faults of this round that are to come
  std::uint64_t rounds_ = 0;
  std::array<std::uint32_t, kLinks> ways_{};  // of the next partition
  std::array<std::uint64_t, kFaults> counts_{};
  std::array<std::uint64_t, kLinks> partitions_{};
  const std::atomic<bool>* over_ = nullptr;
};

}  // namespace precis::torture
