// Nodes that take and give up shards, and their disks, with a real etcd, over a shared storage in
// memory.
#include "cachesvc/server/shard_keeper.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/thread_executor.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/warm_tier.h"
#include "cachesvc/shared/tiered_store.h"
#include "tests/catch_runner.h"
#include "tests/integration/etcd_members.h"
#include "tests/unit/shared/shared_node.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::chrono::seconds kLease{2};

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// The id of the cluster is the only setting.
class OneSetting final : public cluster::AgreedCopy {
 public:
  OneSetting(Catalog& catalog, const std::string& id)
      : catalog_(catalog), row_(Catalog::cluster_id_row(id)) {}
  Result<std::vector<cluster::AgreedRow>> rows() override {
    const std::string id = catalog_.cluster_id();
    return id.empty() ? std::vector<cluster::AgreedRow>()
                      : std::vector<cluster::AgreedRow>{{row_.key, id}};
  }
  Status take(std::vector<cluster::AgreedRow> rows, cluster::LeftOut&) override {
    for (const cluster::AgreedRow& row : rows) {
      if (!row.value) continue;
      PRECIS_TRY(catalog_.take_settings({Catalog::cluster_id_row(*row.value)}).status());
    }
    return {};
  }
  std::vector<cluster::AgreedRow> own_changes() override {
    if (!catalog_.cluster_id().empty()) return {};
    return {{row_.key,
             std::string(reinterpret_cast<const char*>(row_.value->data()), row_.value->size())}};
  }
  std::string identity() const override { return row_.key; }

 private:
  Catalog& catalog_;
  const SettingRow row_;
};

class KeepingNode {
 public:
  // `patience`: of the keeper, instead of the lease.
  KeepingNode(const EtcdMembers& etcd, MemoryTier& tier, const std::string& name,
              std::chrono::seconds patience = kLease)
      : name_(name),
        uploads_(tier, runtime_.clock(), std::make_unique<ThreadExecutor>("copies", 2), 1 << 20),
        store_(make_tiered_store(machine_.open(), tier, uploads_)),
        catalog_(Catalog::open(*store_, runtime_.clock(), ~0ull, /*in_shards=*/true).value()),
        settings_(*catalog_, "id-of-" + name) {
    cluster::Membership::Settings how;
    how.etcd = cluster::parse_etcd_urls(etcd.urls()).value();
    how.cluster = "keepers";
    how.node = name;
    how.address = "127.0.0.1:" + std::to_string(7470 + name.front());
    how.version = "test";
    how.weight = 1;
    how.lease = kLease;
    membership_ = std::make_unique<cluster::Membership>(how, runtime_, log_, settings_);
    keeper_ = std::make_unique<ShardKeeper>(
        ShardKeeper::Parts{*membership_, tier, uploads_, *catalog_, name, runtime_, log_,
                           [](const std::vector<SegmentId>&) {}, [] {}, patience});
  }
  void evict_all(MemoryTier& tier) {
    const auto done = Eviction({tier, *catalog_, runtime_, name_}).run(~0ull, {}, [] {});
    REQUIRE(done.segments > 0);
  }
  WarmTier::Parts warm_parts(const Config& config, EventLoop& loop, const DiskWatch& disk,
                             DiskQuota& quota, Metrics& metrics) {
    return {config, runtime_, loop, *membership_, *store_, *catalog_, disk, quota, metrics, log_};
  }
  Catalog& catalog() { return *catalog_; }
  Store& store() { return *store_; }
  Runtime& runtime() { return runtime_; }
  Log& log() { return log_; }
  bool is_copied() const { return uploads_.lag().changes == 0; }
  std::uint32_t loading() const { return keeper_->state().loading; }
  ShardKeeper& keeper() { return *keeper_; }
  cluster::Membership::Owned owned() const { return membership_->owned(); }
  bool is_member() const { return membership_->owned().is_member; }
  std::string instance() const { return membership_->owned().instance; }

 private:
  const std::string name_;
  MachineRuntime runtime_;
  Log log_{Log::Level::kOff};
  MemoryMachine machine_;
  Uploads uploads_;
  const std::unique_ptr<Store> store_;
  const std::unique_ptr<Catalog> catalog_;
  OneSetting settings_;
  std::unique_ptr<cluster::Membership> membership_;
  std::unique_ptr<ShardKeeper> keeper_;
};

// The shards whose marks name this instance.
std::uint32_t held_by(MemoryTier& tier, const std::string& instance) {
  std::uint32_t count = 0;
  for (std::uint32_t group = 0; group < kShardGroups; ++group) {
    std::vector<std::uint32_t> shards;
    for (std::uint32_t shard = group; shard < kShards; shard += kShardGroups) {
      shards.push_back(shard);
    }
    const auto marks = tier.marks(shards).value();
    for (const auto& mark : marks) {
      if (mark && mark->instance == instance && !mark->released) ++count;
    }
  }
  return count;
}

}  // namespace

// If a loop of these tests never ends, the time limit of the tests ends it.
TEST_CASE("shards that a node took and could not load are released once others own them",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  MemoryTier tier;
  tier.fail_scans(true);
  KeepingNode a(etcd, tier, "a");
  while (!a.is_member() || held_by(tier, a.instance()) < kShards) rest();
  CHECK(a.loading() == kShards);
  KeepingNode b(etcd, tier, "b");
  while (!b.is_member() || held_by(tier, b.instance()) < kShards / 2) rest();
  CHECK(held_by(tier, a.instance()) == kShards / 2);
  tier.fail_scans(false);
  while (a.loading() + b.loading() > 0) rest();
}

TEST_CASE("a shard with a put under way is kept, also if it moves while others are being loaded",
          "[integration][cluster]") {
  const EtcdMembers etcd;
  MemoryTier tier;
  std::atomic<bool> is_scanning = false, may_go_on = false;
  tier.after_scan([&] {
    is_scanning = true;
    while (!may_go_on) rest();
  });
  KeepingNode a(etcd, tier, "a", std::chrono::seconds(600));
  while (!is_scanning || a.loading() > kShards / 2) rest();
  std::vector<std::shared_ptr<const void>> puts(kShards);
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    puts[shard] = a.keeper().begin_put(shard);
    if (!a.keeper().check(shard).ok()) puts[shard].reset();
  }
  KeepingNode b(etcd, tier, "b");
  const auto count_of = [](const cluster::Membership::Owned& owned) {
    return static_cast<std::uint32_t>(std::ranges::count(owned.shards, true));
  };
  while (count_of(b.owned()) != kShards / 2 || count_of(a.owned()) != kShards / 2) rest();
  may_go_on = true;
  const auto of_b = b.owned().shards;
  std::uint32_t kept = 0, ends = kShards;
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    if (!of_b[shard] || !puts[shard]) continue;
    ++kept;
    ends = shard;
  }
  REQUIRE(kept > 0);
  puts[ends].reset();
  while (!b.keeper().check(ends).ok()) rest();
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    if (!of_b[shard] || !puts[shard]) continue;
    REQUIRE_FALSE(tier.marks({&shard, 1}).value().front()->released);
    REQUIRE(tier.marks({&shard, 1}).value().front()->instance == a.instance());
  }
  puts.clear();
  while (a.loading() + b.loading() > 0) rest();
}

TEST_CASE("what reads keep leaves the room that puts were promised", "[integration][cluster]") {
  const EtcdMembers etcd;
  MemoryTier tier;
  KeepingNode node(etcd, tier, "a");
  while (held_by(tier, node.instance()) < kShards || node.loading() > 0) rest();
  const NewSegment segment = in_shard(tokens(8));
  const SegmentId& id = segment.row.id;
  const std::uint64_t bytes = segment.row.stored_bytes;
  REQUIRE(node.catalog().register_model(made().tenant, made().model).ok());
  REQUIRE(node.catalog().commit(segment.row, segment.payload(), Durability::kShared).ok());
  while (!node.is_copied()) rest();
  node.evict_all(tier);

  Config config;
  config.warm_disk_bytes = 2 * bytes;
  AsioLoop loop;
  Metrics metrics;
  const DiskWatch disk(node.store(), node.log(), loop, node.runtime());
  DiskQuota quota(
      loop, [](const std::string&) { return 0; }, {}, std::chrono::hours(1));
  const WarmTier warm(node.warm_parts(config, loop, disk, quota, metrics),
                      {tier, node.catalog(), node.runtime(), "a"});
  const auto let_it_look = [&] {  // more than once
    const auto timer = loop.after(std::chrono::milliseconds(250), [&] { loop.stop(); });
    loop.run();
  };
  const auto kept_of_a_read = [&] {
    const auto row = node.catalog().segment(made().tenant, id).value();
    for (std::uint32_t l = 0; l < segment.layers.size(); ++l) {
      std::vector<std::byte> layer(segment.layers[l].size());
      REQUIRE(node.catalog().peek_layer(*row, l, layer, nullptr).ok());
      node.catalog().keep_layer(*row, l, layer);
    }
    return node.catalog().local_bytes(id);
  };
  std::optional<Result<std::unique_ptr<DiskQuota::Place>>> place;
  const auto enter = [&]() -> Task<void> { place.emplace(co_await quota.enter("red", 2 * bytes)); };
  spawn(enter());
  REQUIRE((place && place->ok()));
  let_it_look();
  CHECK(kept_of_a_read() == 0);
  place.reset();
  let_it_look();
  CHECK(kept_of_a_read() == bytes);
}

int main(int argc, char** argv) {
  if (!EtcdMembers::installed()) {
    std::printf("skipped: the Debian package etcd-server is not installed\n");
    return 77;
  }
  return run_test_cases(argc, argv);
}
