// Objects of the shared storage that no row names: which of them a node removes, and that no other
// object goes.
#include "cachesvc/server/orphans.h"

#include "tests/unit/shared/shared_node.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::chrono::hours kAge{1};
constexpr std::uint64_t kHourMs = 3'600'000;

// A node that has changed its shard, and sweeps by a clock of its own.
struct Sweeper {
  explicit Sweeper(MemoryTier& in) : tier(in) {
    node.take();
    change();
  }
  void change() {
    REQUIRE(node.put(in_shard(tokens(8, next += 1000))).ok());
    REQUIRE(node.copied().ok());
  }
  std::uint64_t sweep_after(std::uint64_t ms) {
    clock.advance_ms(ms);
    last = orphans.sweep();
    return last.removed;
  }

  MemoryTier& tier;
  Node node{tier, "a"};
  TokenId next = 100'000;
  ManualClock clock;
  Orphans orphans{{tier, *node.uploads, *node.catalog, clock, kAge}};
  Orphans::Done last;
};

// Writes an object as a node does that dies before it writes the row.
std::string write_orphan(MemoryTier& tier, TokenId first, std::uint32_t shard = kShard) {
  const std::string name = object_name(in_shard(tokens(8, first), 1, shard).row, 0);
  REQUIRE(tier.write_object(name, bytes_of("orphan")).ok());
  return name;
}

bool has_objects(const MemoryTier& tier, const SegmentRow& row) {
  for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) {
    if (!tier.has_object(object_name(row, l))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an object goes when its shard's holder finds it without a row for an hour",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.node.put(segment).ok());
  REQUIRE(a.node.copied().ok());
  const std::string orphan = write_orphan(tier, 500);
  SegmentRow former = segment.row;  // a version of the stored segment that has no row
  former.created_unix_ms = 0;
  REQUIRE(tier.write_object(object_name(former, 1), bytes_of("orphan")).ok());
  const std::vector<std::string> others = {write_orphan(tier, 500, kShard + 1), orphan.substr(5),
                                           "projection-" + orphan, "x" + orphan};
  for (const std::string& other : others) REQUIRE(tier.write_object(other, bytes_of("o")).ok());
  CHECK(a.sweep_after(0) == 0);
  CHECK(a.last.again);
  CHECK(a.sweep_after(kHourMs - 1) == 0);
  CHECK(a.last.again);
  const std::string young = write_orphan(tier, 700);
  CHECK(a.sweep_after(1) == 2);
  CHECK(a.last.problem.ok());
  CHECK_FALSE(tier.has_object(orphan));
  CHECK_FALSE(tier.has_object(object_name(former, 1)));
  CHECK(tier.has_object(young));
  CHECK(has_objects(tier, segment.row));
  for (const std::string& other : others) CHECK(tier.has_object(other));
  CHECK(a.sweep_after(kHourMs) == 1);
  CHECK_FALSE(a.last.again);
  Node b(tier, "b");
  b.take();
  CHECK(b.has(segment));
}

TEST_CASE("a sweep tells that objects could not be removed, and finds them again",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  a.sweep_after(0);
  tier.refuse_removals(true);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(a.last.again);
  CHECK(a.last.problem.code() == StatusCode::kUnavailable);
  REQUIRE(a.node.copied().ok());  // which is no matter of a change
  CHECK(tier.has_object(orphan));
  tier.refuse_removals(false);
  CHECK(a.sweep_after(0) == 1);
}

// The removal of such an object could take effect late, after the object was written again.
TEST_CASE("an object stays if a later row of its segment can name it", "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.node.put(segment).ok());
  REQUIRE(a.node.copied().ok());
  const auto row = a.node.catalog->segment(made().tenant, segment.row.id).value();
  const NewSegment less = trimmed(segment);
  SegmentRow next = less.row;  // as the trim below makes it, by a node that dies before the row
  next.created_unix_ms = row->created_unix_ms + 1;
  for (std::uint32_t l = 0; l < next.layer_bytes.size(); ++l) {
    REQUIRE(tier.write_object(object_name(next, l), less.payload()[l].records).ok());
  }
  a.sweep_after(0);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(has_objects(tier, next));
  REQUIRE(*a.node.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  REQUIRE(a.node.copied().ok());
  CHECK(has_objects(tier, *a.node.catalog->segment(made().tenant, segment.row.id).value()));
  CHECK(a.node.catalog->segment(made().tenant, segment.row.id).value()->created_unix_ms ==
        next.created_unix_ms);
  REQUIRE(tier.write_object(object_name(segment.row, 0), bytes_of("orphan")).ok());
  a.sweep_after(0);
  CHECK(a.sweep_after(kHourMs) == 1);  // no later row has an earlier time
}

TEST_CASE("many orphans of a shard go in several sweeps", "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::size_t before = tier.objects();
  for (TokenId n = 0; n < 150; ++n) write_orphan(tier, 1000 + 10 * n);
  a.sweep_after(0);
  std::uint64_t removed = 0, sweeps = 0;
  for (a.last.again = true; a.last.again && sweeps < 10; ++sweeps)
    removed += a.sweep_after(kHourMs);
  CHECK(removed == 150);
  CHECK(sweeps > 1);
  CHECK(tier.objects() == before);
}

TEST_CASE("a node removes no orphans of a shard that it holds no more, or has not changed",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  a.sweep_after(0);
  Node b(tier, "b");
  b.take();
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(tier.has_object(orphan));
  // The next holder leaves what the former one may share again when it returns.
  Orphans of_b({tier, *b.uploads, *b.catalog, a.clock, kAge});
  const auto sweep_b = [&] {
    a.clock.advance_ms(kHourMs);
    return of_b.sweep().removed;
  };
  sweep_b();
  CHECK(sweep_b() == 0);
  CHECK(tier.has_object(orphan));
  REQUIRE(b.put(in_shard(tokens(8, 900))).ok());
  REQUIRE(b.copied().ok());
  CHECK(sweep_b() == 1);
  CHECK_FALSE(tier.has_object(orphan));
}

TEST_CASE("no orphan goes if its shard changes while a sweep reads its rows", "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  a.sweep_after(0);
  Node b(tier, "b");
  bool is_taken = false;
  SECTION("another node takes the shard") {
    is_taken = true;
    tier.after_scan([&] { b.take(); });
  }
  SECTION("a change is copied") {
    tier.after_scan([&] { a.change(); });
  }
  SECTION("a change waits") {
    tier.after_scan([&] {
      tier.fill(true);
      REQUIRE(a.node.put(in_shard(tokens(8, 900))).ok());
    });
  }
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(a.last.again);
  CHECK(tier.has_object(orphan));
  tier.fill(false);
  const bool is_held = a.node.copied().ok();
  CHECK(is_held == !is_taken);
  CHECK(a.sweep_after(0) == (is_taken ? 0 : 1));
  CHECK(tier.has_object(orphan) == is_taken);
}

TEST_CASE("the hour of an orphan begins again when its holder takes the shard again",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  a.sweep_after(0);
  tier.after_scan([&] {
    a.node.drop();
    a.node.take();
  });
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(tier.has_object(orphan));
  CHECK(a.sweep_after(kHourMs) == 1);
  CHECK_FALSE(tier.has_object(orphan));
}

TEST_CASE("no orphan of a shard goes that has a row of a later version", "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  Upload later;
  SECTION("of a segment") {
    later.rows.puts.emplace_back(shared_key(Table::kSegments, "0123456789abcdef"), bytes_of("?"));
  }
  SECTION("of something else") { later.rows.puts.emplace_back("later", bytes_of("?")); }
  const auto puts = later.rows.puts;
  a.node.uploads->add(kShard, std::move(later));
  REQUIRE(a.node.copied().ok());
  a.sweep_after(0);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(tier.has_object(orphan));
  Upload gone;
  for (const auto& [key, value] : puts) gone.rows.deletes.push_back(key);
  a.node.uploads->add(kShard, std::move(gone));
  REQUIRE(a.node.copied().ok());
  CHECK(a.sweep_after(0) == 1);
}

TEST_CASE("what the rows of the shared storage name stays, whatever the catalog has",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const NewSegment segment = in_shard(tokens(8));
  REQUIRE(a.node.put(segment).ok());
  REQUIRE(a.node.copied().ok());
  tier.refuse_objects(true);  // so the next version stays at the node
  const auto row = a.node.catalog->segment(made().tenant, segment.row.id).value();
  const NewSegment less = trimmed(segment);
  REQUIRE(*a.node.catalog->trim(*row, less.row, less.payload(), Durability::kWal));
  (void)a.node.copied();
  tier.refuse_objects(false);
  a.sweep_after(0);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(has_objects(tier, segment.row));
  Node b(tier, "b");
  b.take();
  CHECK(b.has(segment));
}

TEST_CASE("a sweep ends when the shared storage does not answer, or the service stops",
          "[unit][shared]") {
  MemoryTier tier;
  Sweeper a(tier);
  const std::string orphan = write_orphan(tier, 500);
  a.sweep_after(0);
  tier.fail(true);
  CHECK(a.sweep_after(kHourMs) == 0);
  CHECK(a.last.problem.code() == StatusCode::kUnavailable);
  tier.fail(false);
  a.orphans.stop();
  CHECK(a.sweep_after(0) == 0);
  CHECK(a.last.problem.code() == StatusCode::kUnavailable);
  CHECK(tier.has_object(orphan));
}
