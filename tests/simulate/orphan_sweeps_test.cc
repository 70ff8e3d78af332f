// When a node sweeps the shared storage, in simulated time.
#include "cachesvc/server/orphan_sweeps.h"

#include <array>
#include <catch2/catch.hpp>

#include "cachesvc/catalog/catalog.h"
#include "tests/simulate/simulation.h"
#include "tests/unit/shared/memory_tier.h"
#include "tests/unit/store/memory_store.h"

namespace precis::simulate {
namespace {

constexpr std::uint32_t kShard = 0x1f;
constexpr char kOrphan[] = "001f-0123456789abcdef0123456789abcdef-1-2-3";

TEST_CASE("a node sweeps once a day, and again an hour after it has found orphans", "[simulate]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    Simulation machine(seed);
    testing::MemoryTier tier;
    testing::MemoryStore store;
    std::atomic<std::uint64_t> removed = 0;
    Log log(Log::Level::kOff);
    const ShardMark mark{1, 0, false, "disk", "instance"};
    CHECK(tier.change_marks(std::array{SharedTier::Change{kShard, {}, mark}}).ok());
    CHECK(tier.write_object(kOrphan, std::array<std::byte, 3>{}).ok());
    std::vector<std::uint64_t> lists, gone;  // after 25 and after 49 hours
    const auto main = machine.start("main", [&] {
      const auto loop = machine.make_loop();
      Uploads uploads(tier, machine.clock(), machine.make_executor("uploads", 2), 1 << 20);
      uploads.begin(kShard, mark, "disk");
      const auto catalog = Catalog::open(store, machine.clock(), ~0ull, /*in_shards=*/true).value();
      OrphanSweeps sweeps({tier, uploads, *catalog, machine, *loop, log, removed});
      const auto look = [&] {
        lists.push_back(tier.lists());
        gone.push_back(removed);
      };
      const auto first = loop->after(std::chrono::hours(25), look);
      const auto second = loop->after(std::chrono::hours(49), [&] {
        look();
        loop->stop();
      });
      loop->run();
    });
    const Status ran = machine.run(main, 1'000'000, std::chrono::hours(100));
    INFO(ran.to_string());
    CHECK(ran.ok());
    CHECK(lists == std::vector<std::uint64_t>{2, 3});
    CHECK(gone == std::vector<std::uint64_t>{1, 1});
    CHECK(tier.objects() == 0);
  }
}

}  // namespace
}  // namespace precis::simulate
