#include "tests/torture/disturbed_node.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "precis/status.h"
#include "tests/integration/free_port.h"
#include "tests/torture/ceph_ports.h"

namespace precis::torture {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";

// An address of the loopback that no other node of any run on this machine has, for the relays to
// Ceph, because these need certain ports.
std::string address_of(std::uint32_t number) {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return "127." + std::to_string(100 + number) + "." + std::to_string(pid >> 8 & 0xff) + "." +
         std::to_string(pid & 0xff);
}

// The relays to Ceph listen at more ports than a process may open by default.
void allow_descriptors() {
  rlimit limit{};
  PRECIS_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  PRECIS_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

}  // namespace

bool DisturbedNode::available() { return !kLoads || std::filesystem::exists(FAKETIME_PATH); }

DisturbedNode::DisturbedNode(const testing::EtcdMembers& etcd, const NodesShare& share,
                             std::uint32_t number, std::uint32_t lease_s) {
  testing::NodeSetup setup;
  setup.name = std::string(1, static_cast<char>('a' + number));
  setup.lease_s = lease_s;
  setup.listen = "127.0.0.1:" + testing::free_port();
  address_ = clients_.listen(kAnyPort, setup.listen);
  for (std::size_t member = 0; member < etcd.size(); ++member) {
    const std::string url = etcd.url(member), scheme = url.substr(0, url.rfind('/') + 1);
    setup.etcd_urls += (member == 0 ? "" : ",") + scheme +
                       etcd_.emplace_back().listen(kAnyPort, url.substr(scheme.size()));
  }
  // Through a Unix socket, bytes of clients would bypass the relay.
  setup.more = "cluster_address = '" + address_ + "'\nlisten_unix = 'off'\n";
  if (share.ceph != nullptr) {
    setup.more += "cluster_ceph_conf = '" + share.ceph->conf() + "'\ncluster_ceph_user = '" +
                  share.ceph->user() + "'\n";
  }
  if (share.s3 != nullptr) {
    setup.more += share.s3->node_settings(storage_.listen(kAnyPort, share.s3->address()));
  }
  // The disk has room for a part of what the node stores.
  if (share.ceph != nullptr || share.s3 != nullptr) setup.more += "warm_disk_bytes = '4MiB'\n";
  set_clock(std::chrono::seconds(0));
  if (kLoads) setup.before = environment(share.ceph, number);
  node_.emplace(setup);
  forget_clock();
}

std::vector<std::string> DisturbedNode::environment(const testing::CephCluster* ceph,
                                                    std::uint32_t number) {
  std::string libraries = std::string(REAL_TIMERS_PATH) + ":" + FAKETIME_PATH;
  std::vector<std::string> command{"/usr/bin/env", "FAKETIME_TIMESTAMP_FILE=" + dir_.path("clock"),
                                   "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
                                   "NO_FAKE_STAT=1"};
  if (ceph != nullptr) {
    allow_descriptors();
    const std::string at = address_of(number), ceph_at = "127.0.0.1";
    storage_.listen(at + ":" + ceph->monitor_port(), ceph_at + ":" + ceph->monitor_port());
    for (int port = kOsdPortFirst; port <= kOsdPortLast; ++port) {
      const std::string colon_port = ":" + std::to_string(port);
      storage_.listen(at + colon_port, ceph_at + colon_port);
    }
    libraries += std::string(":") + CEPH_DETOUR_PATH;
    command.push_back("PRECIS_DETOUR=" + at);
    command.push_back("PRECIS_DETOUR_MONITOR=" + ceph->monitor_port());
  }
  command.push_back("LD_PRELOAD=" + libraries);
  return command;
}

void DisturbedNode::start() {
  node_->start();
  forget_clock();
}

// The library reads the file at each look at the clock, so the file is never half written.
void DisturbedNode::set_clock(std::chrono::seconds ahead) const {
  const std::string name = dir_.path("clock"), unfinished = name + ".new";
  std::ofstream(unfinished) << (ahead.count() < 0 ? "" : "+") << ahead.count() << "\n";
  std::filesystem::rename(unfinished, name);
}

// The library makes shared memory for processes that the node could start. A node that is killed
// would leave it.
void DisturbedNode::forget_clock() const {
  const std::string pid = std::to_string(node_->pid());
  for (const char* name : {"/dev/shm/faketime_shm_", "/dev/shm/sem.faketime_sem_"}) {
    std::error_code ignored;  // another version of the library may make none
    std::filesystem::remove(name + pid, ignored);
  }
}

}  // namespace precis::torture
