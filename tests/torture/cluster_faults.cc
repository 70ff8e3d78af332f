#include "tests/torture/cluster_faults.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace precis::torture {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::uint32_t kNodes = 3, kOsds = 3, kLeaseS = 2;
constexpr auto kSettle = std::chrono::seconds(60), kClockMax = std::chrono::seconds(12 * 3600);
// S3 refuses requests whose clock is more than a quarter of an hour wrong.
constexpr auto kClockMaxOfS3 = std::chrono::seconds(4 * 60);
constexpr std::chrono::milliseconds kDelayMin{50}, kDelayMax{400};  // each way
// The time after the end of its lease within which a node must be cut off.
constexpr auto kGrace = std::chrono::milliseconds(100);
constexpr auto kLook = std::chrono::milliseconds(20);

const char* name_of(Link link) {
  switch (link) {
    case Link::kClients: return "clients";
    case Link::kEtcd: return "etcd";
    case Link::kStorage: return "the storage";
  }
  return "";
}

}  // namespace

ClusterFaults::ClusterFaults(Storage storage, bool only_kills, std::uint32_t seed,
                             std::function<void(const std::string& what)> tell)
    : only_kills_(only_kills), random_(seed), tell_(std::move(tell)) {
  tell_("start the storage and the nodes");
  if (storage == Storage::kCeph) ceph_.emplace(kOsds);
  if (storage == Storage::kS3) s3_.emplace();
  const NodesShare share{ceph_ ? &*ceph_ : nullptr, s3_ ? &*s3_ : nullptr};
  for (std::uint32_t n = 0; n < kNodes; ++n) nodes_.emplace_back(etcd_, share, n, kLeaseS);
  for (std::uint32_t& way : ways_) way = random_();
}

std::string ClusterFaults::addresses() const {
  std::string addresses;
  for (const DisturbedNode& node : nodes_) {
    addresses += (addresses.empty() ? "" : ",") + node.address();
  }
  return "precis://" + addresses + "/";
}

Status ClusterFaults::settle() {
  const auto until = Steady::now() + kSettle;
  for (DisturbedNode& disturbed : nodes_) {
    for (;;) {
      const auto state = disturbed.node().client().cluster();
      const auto owns = [](const msg::ClusterNode& other) { return other.shards > 0; };
      if (state.ok() && state->state == "member" && state->nodes.size() == kNodes &&
          state->loading == 0 && std::ranges::all_of(state->nodes, owns)) {
        break;
      }
      if (Steady::now() > until) {
        return Status::timed_out(
            "the node '" + disturbed.node().name() + "' is not settled: " +
            (state.ok() ? state->state + ", " + state->error : state.status().message()));
      }
      std::this_thread::sleep_for(kLook);
    }
  }
  return {};
}

void ClusterFaults::pause(double leases) const {
  const auto until =
      Steady::now() + std::chrono::milliseconds(static_cast<int>(1000 * kLeaseS * leases));
  while (!*over_ && Steady::now() < until) std::this_thread::sleep_for(kLook);
}

// How many leases a partition lasts, or a fault that is like one. A long one lasts longer than
// clients wait. The first round has no long ones, so that the round is short.
double ClusterFaults::some_leases() {
  const bool is_long = rounds_ > 1 && random_() % 4 == 0;
  return 0.2 + (is_long ? 7 : 2) * fraction();
}

std::string ClusterFaults::text_of(const Card& card, const std::string& node) {
  switch (card.fault) {
    case Fault::kKill: return "kill node " + node;
    case Fault::kRestart: return "restart node " + node;
    case Fault::kStand: return "pause node " + node;
    case Fault::kDrain: return "drain node " + node;
    case Fault::kEtcdKill: return "kill the leader of etcd";
    case Fault::kOsdKill: return "kill an OSD";
    case Fault::kS3Kill: return "kill S3";
    case Fault::kS3Stand: return "pause S3";
    case Fault::kPartition: return "cut off node " + node + " from " + name_of(card.link);
    case Fault::kSlowLink: return "slow the link of node " + node + " to " + name_of(card.link);
    case Fault::kClockStep: return "step the clock of node " + node;
  }
  return "";
}

std::vector<ClusterFaults::Card> ClusterFaults::new_deck() {
  std::vector<Card> deck{{Fault::kKill},
                         {Fault::kKill},
                         {Fault::kRestart},
                         {Fault::kStand},
                         {Fault::kDrain},
                         {Fault::kEtcdKill},
                         {Fault::kPartition, Link::kClients},
                         {Fault::kSlowLink, Link::kClients},
                         {Fault::kPartition, Link::kEtcd},
                         {Fault::kSlowLink, Link::kEtcd}};
  if (DisturbedNode::kLoads) deck.push_back({Fault::kClockStep});
  if (ceph_) deck.push_back({Fault::kOsdKill});
  if (s3_) deck.insert(deck.end(), {{Fault::kS3Kill}, {Fault::kS3Stand}});
  // A library redirects the links to Ceph to relays, and a setting redirects those to S3.
  if (s3_ || (ceph_ && DisturbedNode::kLoads)) {
    deck.insert(deck.end(),
                {{Fault::kPartition, Link::kStorage}, {Fault::kSlowLink, Link::kStorage}});
  }
  return deck;
}

// A round draws all cards of a deck, in a random order.
ClusterFaults::Card ClusterFaults::draw() {
  if (only_kills_) return {Fault::kKill};
  if (deck_.empty()) {
    deck_ = new_deck();
    std::ranges::shuffle(deck_, random_);
    ++rounds_;
  }
  const Card card = deck_.back();
  deck_.pop_back();
  return card;
}

Result<Fault> ClusterFaults::next(const std::atomic<bool>& over) {
  over_ = &over;
  const Card card = draw();
  DisturbedNode& node = nodes_[random_() % kNodes];
  tell_(text_of(card, node.node().name()));
  PRECIS_TRY(make(card, node));
  ++counts_[static_cast<std::size_t>(card.fault)];
  PRECIS_TRY(settle());
  pause(0.3);
  return card.fault;
}

Status ClusterFaults::make(const Card& card, DisturbedNode& disturbed) {
  testing::Node& node = disturbed.node();
  switch (card.fault) {
    case Fault::kKill:
      node.kill();
      pause(0.5 + 1.5 * fraction());
      disturbed.start();
      break;
    case Fault::kRestart:
      if (node.stop() != 0) return Status::internal("a node did not stop in order");
      disturbed.start();
      break;
    case Fault::kStand:
      ::kill(node.pid(), SIGSTOP);
      pause(0.2 + 2 * fraction());
      ::kill(node.pid(), SIGCONT);
      break;
    case Fault::kDrain: return drain(node);
    case Fault::kEtcdKill: kill_etcd_leader(); break;
    case Fault::kOsdKill: kill_osd(); break;
    case Fault::kS3Kill: kill_s3(); break;
    case Fault::kS3Stand: stop_s3(); break;
    case Fault::kPartition: return partition(card.link, disturbed);
    case Fault::kSlowLink: slow(card.link, disturbed); break;
    case Fault::kClockStep: set_clock(disturbed); break;
  }
  return {};
}

Status ClusterFaults::drain(testing::Node& node) {
  PRECIS_TRY(node.client().drain_node(node.name(), true).status().with_context("drain"));
  pause(0.3);
  return node.client().drain_node(node.name(), false).status().with_context("undrain");
}

void ClusterFaults::kill_etcd_leader() {
  const std::size_t member = etcd_.leader();
  etcd_.kill(member);
  pause(1);
  etcd_.start(member);
}

void ClusterFaults::kill_osd() {
  const std::size_t osd = random_() % kOsds;
  ceph_->kill_osd(osd);
  pause(1);
  ceph_->start_osd(osd);
  ceph_->await_osds(kOsds);
}

void ClusterFaults::kill_s3() {
  s3_->kill();
  pause(0.2 + fraction());
  s3_->start();
}

void ClusterFaults::stop_s3() {
  s3_->signal(SIGSTOP);
  pause(some_leases());
  s3_->signal(SIGCONT);
}

// The clock stays wrong, so that later faults meet nodes whose clocks differ.
void ClusterFaults::set_clock(DisturbedNode& node) {
  const double from_minus_1_to_1 = 2 * fraction() - 1;
  const auto most = static_cast<double>((s3_ ? kClockMaxOfS3 : kClockMax).count());
  node.set_clock(std::chrono::seconds(static_cast<int>(from_minus_1_to_1 * most)));
  pause(0.5);
}

// Sometimes returns the link to only one member of etcd. A node does not need every member.
std::vector<Relay*> ClusterFaults::relays(Link link, DisturbedNode& node) {
  if (link == Link::kClients) return {&node.clients()};
  if (link == Link::kStorage) return {&node.storage()};
  std::vector<Relay*> relays;
  for (Relay& relay : node.etcd()) relays.push_back(&relay);
  if (rounds_ > 1 && random_() % 3 == 0) relays = {relays[random_() % relays.size()]};
  return relays;
}

Status ClusterFaults::partition(Link link, DisturbedNode& node) {
  const auto which = static_cast<std::size_t>(link);
  const auto way = static_cast<Relay::Way>(ways_[which]++ % 3);
  const auto cut = relays(link, node);
  const auto began = Steady::now();
  for (Relay* relay : cut) relay->hold(way);
  pause(some_leases());
  const bool is_cut_off = link == Link::kEtcd && cut.size() == etcd_.size() &&
                          Steady::now() - began > std::chrono::seconds(kLeaseS) + kGrace;
  const auto state = node.node().client().cluster();
  const bool broken = random_() % 2 == 0;
  for (Relay* relay : cut) relay->heal(broken);
  ++partitions_[which];
  if (!is_cut_off) return {};
  PRECIS_TRY(state.status().with_context("ask '" + node.node().name() + "' behind a partition"));
  if (state->state == "cut_off") return {};
  return Status::internal("a node that etcd has not answered for a lease is " + state->state);
}

void ClusterFaults::slow(Link link, DisturbedNode& node) {
  const auto slowed = relays(link, node);
  const auto more = (kDelayMax - kDelayMin).count() * fraction();
  for (Relay* relay : slowed) {
    relay->delay(kDelayMin + std::chrono::milliseconds(static_cast<int>(more)));
  }
  pause(0.2 + 0.6 * fraction());
  for (Relay* relay : slowed) relay->heal(/*broken=*/false);
}

}  // namespace precis::torture
