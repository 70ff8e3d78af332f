// Local copies of what nodes share: which of them leave a node's store, and that nothing is lost.
#include "cachesvc/server/eviction.h"

#include <thread>

#include "cachesvc/server/warm_tier.h"
#include "tests/unit/shared/shared_node.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint64_t kAll = ~0ull;

std::vector<bool> only(std::uint32_t shard) {
  std::vector<bool> bits(kShards);
  bits[shard] = true;
  return bits;
}

Eviction::Done evict(MemoryTier& tier, Node& node, std::uint64_t bytes,
                     const std::vector<bool>& own = only(kShard)) {
  MachineRuntime runtime;
  return Eviction({tier, *node.catalog, runtime, node.name()}).run(bytes, own, [] {});
}

std::uint64_t size_of(const NewSegment& segment) { return segment.row.stored_bytes; }

NewSegment used(NewSegment segment, std::uint64_t last_used_unix_ms) {
  segment.row.last_used_unix_ms = last_used_unix_ms;
  return segment;
}

}  // namespace

TEST_CASE("an evicted segment is read from the shared storage, and kept again while there is room",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.put(segment).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(a.local_bytes(segment) == size_of(segment));
  const auto done = evict(tier, a, kAll);
  CHECK(done.segments == 1);
  CHECK(done.bytes == size_of(segment));
  CHECK(a.local_bytes(segment) == 0);
  CHECK(a.catalog->totals().stored_bytes == size_of(segment));
  a.catalog->limit_kept(size_of(segment) - 1);
  CHECK(a.has(segment));
  CHECK(a.local_bytes(segment) < size_of(segment));
  a.catalog->limit_kept(size_of(segment));
  CHECK(a.has(segment));
  CHECK(a.local_bytes(segment) == size_of(segment));
  const std::uint64_t calls = tier.calls();
  CHECK(a.has(segment));
  CHECK(tier.calls() == calls);
  // The segment can be read after a crash too, whatever state its layers are in.
  evict(tier, a, kAll);
  a.crash();
  a.open();
  a.take();
  CHECK(a.has(segment));
  CHECK(a.catalog->lost_segments() == 0);
}

TEST_CASE("other changes do not wait until a layer that was read is written", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment segment = in_shard(tokens(8)), other = in_shard(tokens(8, 500));
  REQUIRE(a.put(segment).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(evict(tier, a, kAll).segments == 1);
  a.catalog->limit_kept(kAll);
  int changes = 0;
  a.on_stage = [&] {
    if (changes++ == 0) REQUIRE(a.put(other).ok());
  };
  CHECK(a.has(segment));
  CHECK(changes > 0);
  CHECK(a.local_bytes(segment) == size_of(segment));
  SECTION("and nothing is kept of what was removed meanwhile") {
    REQUIRE(a.copied().ok());
    REQUIRE(evict(tier, a, kAll).segments == 2);
    const auto row = a.catalog->segment(made().tenant, segment.row.id).value();
    std::vector<std::byte> layer(segment.layers[0].size());
    REQUIRE(a.catalog->peek_layer(*row, 0, layer, nullptr).ok());
    a.on_stage = [&] {
      REQUIRE(a.catalog->remove(made().tenant, segment.row.id, false, nullptr).ok());
    };
    a.catalog->keep_layer(*row, 0, layer);
    CHECK(a.local_bytes(segment) == 0);
  }
}

TEST_CASE("what is not copied yet is not evicted", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment first = in_shard(tokens(8)), second = in_shard(tokens(8, 500));
  REQUIRE(a.put(first).ok());
  REQUIRE(a.copied().ok());
  tier.fill(true);
  REQUIRE(a.put(second).ok());
  // A later version of the first segment is not copied either.
  const auto row = a.catalog->segment(made().tenant, first.row.id).value();
  const NewSegment less = trimmed(first);
  REQUIRE(*a.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  CHECK(evict(tier, a, kAll).segments == 0);
  CHECK(a.local_bytes(second) == size_of(second));
  CHECK(a.local_bytes(less) == size_of(less));
  SECTION("nor if the shared storage does not answer") {
    tier.fail(true);
    const auto done = evict(tier, a, kAll);
    CHECK(done.problem.code() == StatusCode::kUnavailable);
    CHECK(done.segments == 0);
    tier.fail(false);
  }
  tier.fill(false);
  REQUIRE(a.copied().ok());
  CHECK(evict(tier, a, kAll).segments == 2);
  CHECK(a.has(second));
  CHECK(a.has(less));
}

TEST_CASE("copies of others' shards go first, then what was used least recently",
          "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  constexpr std::uint32_t kOther = kShard + 1;
  a.take(kOther);
  const NewSegment others = used(in_shard(tokens(8), 1, kOther), 900);
  REQUIRE(a.put(others).ok());
  REQUIRE(a.copied(kOther).ok());
  a.drop(kOther);
  b.take(kOther);
  a.take();
  std::vector<NewSegment> own;
  for (const TokenId n : {1u, 2u, 3u}) own.push_back(in_shard(tokens(8, n * 1000)));
  own[0].row.last_used_unix_ms = 300;
  own[1].row.created_unix_ms = 100;
  own[2].row.last_used_unix_ms = 200;
  for (const NewSegment& each : own) REQUIRE(a.put(each).ok());
  REQUIRE(a.copied().ok());
  const auto left = [&] {
    std::vector<bool> here{a.local_bytes(others) > 0};
    for (const NewSegment& each : own) here.push_back(a.local_bytes(each) > 0);
    return here;
  };
  CHECK(left() == std::vector{true, true, true, true});
  evict(tier, a, 1);
  CHECK(left() == std::vector{false, true, true, true});
  evict(tier, a, 1);
  CHECK(left() == std::vector{false, true, false, true});
  evict(tier, a, 1);
  CHECK(left() == std::vector{false, true, false, false});
  evict(tier, a, kAll);
  CHECK(left() == std::vector{false, false, false, false});
  for (const NewSegment& each : own) CHECK(a.has(each));
  CHECK(b.has(others));
  b.drop(kOther);
  a.take(kOther);
  CHECK(a.has(others));
}

TEST_CASE("eviction goes on past shards whose rows are damaged", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  constexpr std::uint32_t kOther = kShard + 1;
  a.take();
  a.take(kOther);
  const NewSegment first = used(in_shard(tokens(8)), 100),
                   second = used(in_shard(tokens(8, 500), 1, kOther), 200);
  REQUIRE(a.put(first).ok());
  REQUIRE(a.put(second).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(a.copied(kOther).ok());
  tier.damage(kShard);
  const auto done = evict(tier, a, 1);
  CHECK(done.problem.code() == StatusCode::kCorruption);
  CHECK(done.segments == 1);
  CHECK(a.local_bytes(first) == size_of(first));
  CHECK(a.local_bytes(second) == 0);
}

TEST_CASE("copies that are old, or that nobody will use any more, are given up", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a"), b(tier, "b");
  a.take();
  const NewSegment cut = in_shard(tokens(8)), removed = in_shard(tokens(8, 500)),
                   only_here = in_shard(tokens(8, 900));
  REQUIRE(a.put(cut).ok());
  REQUIRE(a.put(removed).ok());
  REQUIRE(a.copied().ok());
  tier.fill(true);
  REQUIRE(a.put(only_here).ok());
  a.crash();
  tier.fill(false);
  a.open();
  const std::vector<bool> none(kShards);
  // The segment `only_here` would be there again if the shard came back before another node changed
  // it.
  b.take();
  CHECK(evict(tier, a, kAll, none).segments == 2);
  CHECK(a.local_bytes(only_here) == size_of(only_here));
  const auto row = b.catalog->segment(made().tenant, cut.row.id).value();
  const NewSegment less = trimmed(cut);
  REQUIRE(*b.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  REQUIRE(b.catalog->remove(made().tenant, removed.row.id, false, nullptr).ok());
  REQUIRE(b.copied().ok());
  CHECK(evict(tier, a, kAll, none).segments == 1);
  CHECK(a.local_bytes(only_here) == 0);
  CHECK(a.catalog->lost_segments() == 1);
  b.drop();
  a.take();
  CHECK(a.has(less));
  CHECK_FALSE(a.has(only_here));
}

TEST_CASE("a node that stops keeps no rows without layers", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment evicted = in_shard(tokens(8)), kept = in_shard(tokens(8, 500));
  REQUIRE(a.put(evicted).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(evict(tier, a, kAll).segments == 1);
  REQUIRE(a.put(kept).ok());
  REQUIRE(a.copied().ok());
  a.drop();
  CHECK(a.catalog->eviction_order({}).size() == 2);
  a.close();
  a.open();
  CHECK(a.catalog->eviction_order({}).size() == 1);
  a.take();
  CHECK(a.has(evicted));
  const std::uint64_t calls = tier.calls();
  CHECK(a.has(kept));
  CHECK(tier.calls() == calls);
}

TEST_CASE("an evicted segment that the shared storage has lost is not found any more",
          "[unit][shared]") {
  MemoryTier tier;
  const NewSegment evicted = in_shard(tokens(8)), kept = in_shard(tokens(8, 500));
  Node a(tier, "a");
  a.take();
  REQUIRE(a.put(evicted).ok());
  REQUIRE(a.copied().ok());
  REQUIRE(evict(tier, a, kAll).segments == 1);
  REQUIRE(a.put(kept).ok());
  REQUIRE(a.copied().ok());
  a.crash(/*hardened=*/true);
  tier.clear();
  a.open();
  a.take();
  CHECK_FALSE(a.has(evicted));
  CHECK(a.has(kept));
  CHECK(a.catalog->lost_segments() == 1);
  REQUIRE(a.copied().ok());
  CHECK(evict(tier, a, kAll).segments == 1);
  CHECK(a.has(kept));
}

TEST_CASE("a segment that is removed and put again at once keeps its objects", "[unit][shared]") {
  MemoryTier tier;
  Node a(tier, "a");
  a.take();
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.put(segment).ok());
  REQUIRE(a.copied().ok());
  tier.fail(true);  // so that both changes are copied together, after another one
  const std::uint64_t calls = tier.calls();
  REQUIRE(a.put(in_shard(tokens(8, 500))).ok());
  while (tier.calls() == calls) std::this_thread::yield();  // the other one is being copied
  REQUIRE(a.catalog->remove(made().tenant, segment.row.id, false, nullptr).ok());
  REQUIRE(a.put(segment).ok());
  tier.fail(false);
  REQUIRE(a.copied().ok());
  CHECK(tier.objects() == 2 * segment.layers.size());
  CHECK(evict(tier, a, kAll).segments == 2);
  CHECK(a.has(segment));
}

TEST_CASE("the disk's limit is warm_disk_bytes, or what the disk has room for", "[unit][shared]") {
  StoreHealth disk;
  StoreStats stored;
  CHECK(WarmTier::limit(1000, disk, stored) == 1000);
  CHECK(WarmTier::limit(0, disk, stored) == kAll);  // a store without a disk
  disk.total_bytes = 2000;
  disk.min_free_bytes = 100;
  disk.free_bytes = 300;
  stored.payload_bytes = 400;
  stored.unclaimed_bytes = 50;
  CHECK(WarmTier::limit(0, disk, stored) == 550);
  CHECK(WarmTier::limit(1000, disk, stored) == 550);
  CHECK(WarmTier::limit(500, disk, stored) == 500);
  disk.free_bytes = 0;
  stored = {};
  CHECK(WarmTier::limit(500, disk, stored) == 1);
}
