#include "tests/integration/sweep.h"

#include <array>
#include <catch2/catch.hpp>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/server/orphans.h"
#include "cachesvc/shared/tiered_store.h"
#include "tests/unit/store/memory_store.h"

namespace precis::testing {
namespace {

constexpr std::chrono::seconds kLong{60};

Catalog::LoadedShard read_shard(SharedTier& tier, std::uint32_t shard) {
  Catalog::LoadedShard loaded{shard, false, {}};
  const Status scanned =
      tier.scan(std::array{shard}, [&](std::uint32_t, std::string_view key, Bytes value) -> Status {
        auto name = from_shared_key(key);
        REQUIRE(name);
        loaded.rows.push_back({name->first, std::move(name->second), {value.begin(), value.end()}});
        return {};
      });
  INFO(scanned.to_string());
  REQUIRE(scanned.ok());
  return loaded;
}

}  // namespace

std::uint64_t sweep(SharedTier& tier, const std::set<std::uint32_t>& shards) {
  const SystemClock clock;
  MemoryMachine machine;
  Uploads uploads(tier, clock, std::make_unique<ThreadExecutor>("copies", 4), 1 << 20);
  const auto store = make_tiered_store(machine.open(), tier, uploads);
  const auto catalog = Catalog::open(*store, clock, ~0ull, /*in_shards=*/true).value();
  for (const std::uint32_t shard : shards) {
    const auto mark = tier.marks(std::array{shard}).value().front();
    REQUIRE(mark);
    REQUIRE(mark->released);
    // The sweep acts as the node that has changed the shard last.
    const ShardMark own{mark->epoch, 0, false, mark->node, "sweeper"};
    REQUIRE(tier.change_marks(std::array{SharedTier::Change{shard, mark, own}}).ok());
    uploads.begin(shard, own, own.node);
    REQUIRE(catalog->load_shard(read_shard(tier, shard)).ok());
  }
  Orphans orphans({tier, uploads, *catalog, clock, std::chrono::nanoseconds(0)});
  std::uint64_t removed = 0;
  for (Orphans::Done done{0, true, {}}; done.again; removed += done.removed) {
    done = orphans.sweep();
    INFO(done.problem.to_string());
    REQUIRE(done.problem.ok());
  }
  for (const std::uint32_t shard : shards) {
    const auto mark = uploads.end(shard, clock.now() + kLong);
    REQUIRE(mark);
    SharedTier::Change change{shard, *mark, *mark};
    change.to.released = true;
    REQUIRE(tier.change_marks(std::array{change}).ok());
  }
  return removed;
}

}  // namespace precis::testing
