// Nodes whose disks are smaller than what they store in the storage that nodes share: a real Ceph.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "tests/catch_runner.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"
#include "tests/integration/small_disk.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint32_t kTokens = 1000;  // about 1.9 MB
constexpr std::uint32_t kFewTokens = 64;

std::unique_ptr<CephCluster> ceph;  // main() makes it

// The only node of a cluster, and its expected content.
class WarmNode {
 public:
  // `dir` has room for its data; `settings` are lines of its configuration.
  WarmNode(const std::string& name, std::string dir, const std::string& settings,
           std::uint32_t tokens = kTokens)
      : tokens_(tokens), dir_(std::move(dir)) {
    std::ofstream(config_.path("precisd.toml"))
        << "cluster_etcd = '" << etcd_.urls() << "'\ncluster_name = '" << name
        << "'\ncluster_node = 'a'\ncluster_lease_s = 2\ncluster_ceph_conf = '" << ceph->conf()
        << "'\ncluster_ceph_user = '" << ceph->user() << "'\ntidy_after_ms = 20\n"
        << settings << "[[tenant]]\nname = 'default'\ntoken = 'boss'\nrole = 'admin'\n";
    kv_ = random_kv(random_, tiny_model(), 0, tokens_);
    start();
  }
  void start() {
    auto started = ServiceProcess::start(
        dir_, {"--config", config_.path("precisd.toml"), "--memory", "48MiB"});
    INFO(started.status().to_string());
    REQUIRE(started.ok());
    service_ = std::move(started).value();
    ConnectOptions admin = patient();
    admin.token = "boss";
    client_ = service_->connect(admin);
    for (;;) {
      const auto state = client_->cluster().value();
      const bool is_loaded = state.state == "member" && state.shared && state.loading == 0;
      if (is_loaded && state.nodes.size() == 1 && state.nodes[0].shards > 0) break;
      pause();
    }
    model_ = client_->register_model(tiny_model()).value();
  }
  void kill() {
    client_.reset();
    REQUIRE(service_->kill() == -SIGKILL);
  }
  void restart() {
    client_.reset();
    REQUIRE(service_->stop() == 0);
    start();
  }

  Status put(Durability durability = Durability::kShared) {
    const auto path = random_tokens(random_, tokens_);
    const auto info = put_all(*client_, *model_, path, kv_, keep_most(), durability);
    if (!info.ok()) return info.status();
    bytes_ += info->stored_bytes;
    stored_.push_back({path, info->id});
    return {};
  }
  void fill_to(std::uint64_t bytes) {
    while (bytes_ < bytes) {
      const Status status = put(Durability::kWal);
      INFO(status.to_string());
      REQUIRE(status.ok());
    }
  }
  bool reads(std::size_t segment) {
    const auto read = read_all(*client_, *model_, stored_[segment].path);
    INFO(read.status().to_string());
    CHECK(read.ok());
    return read.ok() && rows_are_of(*read, {&kv_});
  }
  void check_all() {
    for (std::size_t n = 0; n < stored_.size(); ++n) {
      CAPTURE(n);
      CHECK(reads(n));
    }
  }
  std::uint64_t told(const std::string& name) {
    return static_cast<std::uint64_t>(stat(*client_, name));
  }
  // The space that the files of payload take.
  std::uint64_t disk_bytes() const {
    const Ran ran = run({"/usr/bin/env", "du", "-sB1", dir_ + "/payload"});
    REQUIRE(ran.exit_code == 0);
    return std::stoull(ran.out);
  }
  // If it never gets so low, this test's time limit ends it.
  void await_disk(std::uint64_t bytes) const {
    while (disk_bytes() > bytes) pause();
  }
  // A read keeps a segment only if there is room.
  void await_room(std::uint64_t limit) {
    while (told("precis_warm_bytes") > limit / 100 * 95) pause();
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
  Client& client() { return *client_; }
  const SegmentId& id(std::size_t segment) const { return stored_[segment].id; }
  std::size_t segments() const { return stored_.size(); }

 private:
  struct Segment {
    std::vector<TokenId> path;
    SegmentId id;
  };
  const std::uint32_t tokens_;  // of each segment
  const EtcdMembers etcd_;
  const TempDir config_;
  const std::string dir_;
  std::unique_ptr<ServiceProcess> service_;
  std::shared_ptr<Client> client_;
  std::optional<Model> model_;
  std::mt19937 random_{20261129};
  Kv kv_;
  std::vector<Segment> stored_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

TEST_CASE("a node serves eight times what its disk may keep", "[integration][cluster][ceph]") {
  constexpr std::uint64_t kWarm = 3 * kMiB;
  const TempDir dir;
  WarmNode node("eight", dir.path("data"), "warm_disk_bytes = '3MiB'\n", kFewTokens);
  node.fill_to(8 * kWarm);
  node.await_disk(kWarm);
  CHECK(node.told("precis_warm_limit_bytes") == kWarm);
  CHECK(node.told("precis_stored_bytes") >= 8 * kWarm);
  CHECK(node.told("precis_warm_evictions_total") >= node.segments() * 7 / 8);
  node.check_all();
  node.await_disk(kWarm);

  // A segment that came from the shared storage comes from the disk the next time, but not if it
  // was only checked.
  node.restart();
  const auto shared = [&] { return node.told("precis_layers_shared_total"); };
  std::size_t evicted = 0;
  const auto check = [&] { return node.client().check_segment(node.id(evicted)).value().damage; };
  while (check().empty() && shared() == 0) REQUIRE(++evicted < node.segments());
  const std::uint64_t layers = shared();
  CHECK(check() == "");
  CHECK(shared() == 2 * layers);
  node.await_room(kWarm);
  CHECK(node.reads(evicted));
  CHECK(shared() == 3 * layers);
  node.restart();
  CHECK(node.reads(evicted));
  CHECK(shared() == 0);
  CHECK(node.told("precis_layers_cold_total") > 0);

  const auto backup = node.client().start_backup({});
  CHECK(backup.status().code() == StatusCode::kUnsupported);
  CHECK_THAT(backup.status().message(), Contains("back up that storage"));
}

TEST_CASE("a node that is killed while it evicts loses nothing", "[integration][cluster][ceph]") {
  const TempDir dir;
  WarmNode node("killed", dir.path("data"), "warm_disk_bytes = '5MiB'\n");
  for (int round = 0; round < 2; ++round) {
    for (int n = 0; n < 3; ++n) REQUIRE(node.put() == Status());
    node.kill();
    node.start();
    node.check_all();
  }
}

TEST_CASE("a put waits for the uploads if the disk is full of what is not copied",
          "[integration][cluster][ceph]") {
  const TempDir dir;
  WarmNode node("behind", dir.path("data"), "warm_disk_bytes = '7MiB'\nmemory_wait_ms = 300\n");
  for (std::size_t osd = 0; osd < 3; ++osd) ceph->signal_osd(osd, SIGSTOP);
  Status refused;
  for (int n = 0; n < 8 && refused.ok(); ++n) refused = node.put(Durability::kWal);
  for (std::size_t osd = 0; osd < 3; ++osd) ceph->signal_osd(osd, SIGCONT);
  CHECK(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(), Contains("the uploads to the shared storage are behind"));
  while (!node.put().ok()) WarmNode::pause();
  node.check_all();
}

TEST_CASE("a node with a small real disk stores more than fits there, and refuses no put",
          "[integration][cluster][ceph][disk]") {
  const auto disk = SmallDisk::mount(DiskKind::kTmpfs, 48 * kMiB);
  if (!disk.ok()) {
    std::printf("skipped: file systems can't be mounted here\n");
    return;
  }
  WarmNode node("small", (*disk)->path("data"), "");
  node.fill_to(72 * kMiB);
  CHECK(node.told("precis_warm_limit_bytes") < 48 * kMiB);
  CHECK(node.told("precis_disk_low") == 0);
  node.check_all();
  // Another program takes the rest of the disk.
  (*disk)->fill_up("foreign");
  while (node.told("precis_warm_bytes") > 30 * kMiB) WarmNode::pause();
  while (node.told("precis_disk_low") == 1) WarmNode::pause();
  REQUIRE(node.put() == Status());
  node.check_all();
}

int main(int argc, char** argv) {
  if (!CephCluster::available() || !EtcdMembers::installed()) {
    std::printf("skipped: install ceph-mon, ceph-osd and etcd-server, and run it as root\n");
    return 77;
  }
  ceph = std::make_unique<CephCluster>();
  const int failed = run_test_cases(argc, argv);
  ceph.reset();
  return failed;
}
