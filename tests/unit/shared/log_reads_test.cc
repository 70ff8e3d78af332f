// Reading rows again from the logs of an object store: its requests, and the memory for it.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

#include "cachesvc/shared/log_memory.h"
#include "cachesvc/shared/log_tier.h"
#include "cachesvc/shared/shard_log.h"
#include "tests/unit/shared/memory_bucket.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint32_t kShard = 7;
const ShardMark kMark{1, 0, false, "node", "instance"};

std::unique_ptr<SharedTier> tier_over(MemoryBucket& bucket, LogTierSettings settings = {}) {
  settings.prefix = "test";
  return make_log_tier(std::make_unique<BucketClient>(bucket), std::move(settings));
}

void take(SharedTier& tier, std::uint32_t shard) {
  REQUIRE(tier.change_marks(std::array{SharedTier::Change{shard, {}, kMark}}).ok());
}

// Writes `count` rows, one after another, whose keys begin with the mark's sequence.
ShardMark write_rows(SharedTier& tier, std::uint32_t shard, ShardMark mark, int count,
                     std::size_t bytes = 3) {
  for (int n = 0; n < count; ++n, ++mark.sequence) {
    SharedBatch batch;
    batch.puts.emplace_back(std::to_string(mark.sequence), std::vector<std::byte>(bytes));
    REQUIRE(tier.write(shard, mark, batch).ok());
  }
  return mark;
}

// The requests of one call.
struct Cost {
  std::size_t lists = 0, gets = 0;
  bool operator==(const Cost&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Cost& cost) {
  return out << cost.lists << " lists and " << cost.gets << " GETs";
}
template <typename Call>
Cost cost_of(const MemoryBucket& bucket, const Call& call) {
  const auto before = bucket.requests();
  call();
  const auto after = bucket.requests();
  return {after.lists - before.lists, after.gets - before.gets};
}

// Refuses some requests, and tells what it is asked for.
class WatchedStore final : public ObjectStore {
 public:
  struct Hooks {
    std::function<Status(const std::string& name)> create = {};
    std::function<void(const std::string& name, std::size_t bytes_max)> get = {};
  };
  WatchedStore(MemoryBucket& bucket, Hooks hooks) : right_(bucket), hooks_(std::move(hooks)) {}
  Result<bool> create(const std::string& name, Bytes value) override {
    if (hooks_.create) PRECIS_TRY(hooks_.create(name));
    return right_.create(name, value);
  }
  Status put(const std::string& name, Bytes value) override { return right_.put(name, value); }
  Result<std::vector<std::byte>> get(const std::string& name, std::size_t bytes_max) override {
    if (hooks_.get) hooks_.get(name, bytes_max);
    return right_.get(name, bytes_max);
  }
  Status get_into(const std::string& name, MutableBytes into) override {
    return right_.get_into(name, into);
  }
  Status remove(const std::string& name) override { return right_.remove(name); }
  Result<Page> list(const std::string& prefix, const std::string& after) override {
    return right_.list(prefix, after);
  }

 private:
  BucketClient right_;
  const Hooks hooks_;
};

std::unique_ptr<LogMemory::Kept> kept_of(std::size_t bytes, std::uint64_t last) {
  auto kept = std::make_unique<LogMemory::Kept>();
  kept->state.put_row(kShard, "key", std::vector<std::byte>(bytes));
  kept->last = last;
  return kept;
}

}  // namespace

TEST_CASE("rows that were read before cost one list, and a GET of each record since",
          "[unit][shared]") {
  MemoryBucket bucket;
  const auto writer = tier_over(bucket);
  take(*writer, kShard);
  ShardMark mark = write_rows(*writer, kShard, kMark, 20);
  const auto reader = tier_over(bucket);
  std::size_t found = 0;
  const auto scan = [&] { found = rows_of(*reader, {kShard}).size(); };
  const auto one = [&] { found = reader->rows(kShard, std::array{std::string("3")})->size(); };

  CHECK(cost_of(bucket, scan) == Cost{2, 21});
  CHECK(found == 20);
  CHECK(cost_of(bucket, scan) == Cost{1, 0});
  CHECK(found == 20);
  CHECK(cost_of(bucket, one) == Cost{1, 0});

  mark = write_rows(*writer, kShard, mark, 3);
  CHECK(cost_of(bucket, scan) == Cost{2, 3});  // the second list shows that the records count
  CHECK(found == 23);
  CHECK(cost_of(bucket, scan) == Cost{1, 0});

  const auto read_own = [&] { found = rows_of(*writer, {kShard}).size(); };
  read_own();
  write_rows(*writer, kShard, mark, 5);
  CHECK(cost_of(bucket, read_own) == Cost{1, 0});  // what the node has written itself
  CHECK(found == 28);
}

TEST_CASE("rows that were read before are right after snapshots and many records",
          "[unit][shared]") {
  // If no records are kept in memory, new records are added to the rows at once.
  const std::size_t records_bytes_max = GENERATE(0u, 1u << 18);
  MemoryBucket bucket;
  const auto writer = tier_over(bucket, {.snapshot_after = 8});
  const auto reader = tier_over(bucket, {.records_bytes_max = records_bytes_max});
  take(*writer, kShard);
  ShardMark mark = kMark;
  for (int count = 1; count < 30; ++count) {
    mark = write_rows(*writer, kShard, mark, count % 7);
    if (count % 3 == 0) REQUIRE(reader->marks({{kShard}}).value().front() == mark);
    CHECK(rows_of(*reader, {kShard}).size() == mark.sequence);
    CHECK(cost_of(bucket, [&] { rows_of(*reader, {kShard}); }) == Cost{1, 0});
  }
}

TEST_CASE("a node that takes shards reads the snapshot of a group once", "[unit][shared]") {
  MemoryBucket bucket;
  const auto writer = tier_over(bucket, {.snapshot_after = 8});
  take(*writer, kShard);
  const ShardMark mark = write_rows(*writer, kShard, kMark, 10);
  const auto taker = tier_over(bucket);
  const auto take_over = [&] {
    REQUIRE(taker->marks({{kShard}}).value().front() == mark);
    REQUIRE(
        taker
            ->change_marks(std::array{SharedTier::Change{kShard, mark, {2, 0, false, "node", "b"}}})
            .ok());
    CHECK(rows_of(*taker, {kShard}).size() == 10);
  };
  CHECK(cost_of(bucket, take_over).gets == 4);  // the snapshot of 8, and 3 records
}

TEST_CASE("rows in memory are never those of before another node took the shard",
          "[unit][shared]") {
  MemoryBucket bucket;
  const auto former = tier_over(bucket);
  take(*former, kShard);
  const ShardMark mark = write_rows(*former, kShard, kMark, 2);
  REQUIRE(rows_of(*former, {kShard}).size() == 2);
  const auto next = tier_over(bucket);
  const ShardMark taken{2, 0, false, "other", "other"};
  REQUIRE(next->change_marks(std::array{SharedTier::Change{kShard, mark, taken}}).ok());
  SharedBatch batch;
  batch.puts.emplace_back("new", bytes_of("row"));
  batch.deletes = {"0"};
  REQUIRE(next->write(kShard, taken, batch).ok());

  SharedBatch late;
  late.puts.emplace_back("late", bytes_of("row"));
  if (GENERATE(false, true)) {
    CHECK(former->write(kShard, mark, late).code() == StatusCode::kMoved);
  }
  const RowsFound expected = {{{kShard, "1"}, std::vector<std::byte>(3)},
                              {{kShard, "new"}, bytes_of("row")}};
  CHECK(rows_of(*former, {kShard}) == expected);
  CHECK(rows_of(*next, {kShard}) == expected);
}

TEST_CASE("the rows that are kept in memory are bounded, and those read least recently go",
          "[unit][shared]") {
  constexpr std::size_t kRow = 10'000, kMost = 2 * kRow + 1000;
  LogMemory memory(kMost);
  const std::array<int, 4> logs{};
  const auto read = [&](int log) {
    auto kept = memory.take(&logs[log]);
    const bool was_kept = kept != nullptr;
    if (!was_kept) kept = kept_of(kRow, 1);
    memory.give(&logs[log], std::move(kept), /*was_read=*/true);
    CHECK(memory.kept_bytes() <= kMost);
    return was_kept;
  };
  CHECK_FALSE(read(0));
  CHECK_FALSE(read(1));
  CHECK(read(0));
  CHECK_FALSE(read(2));  // instead of 1
  CHECK(read(0));
  CHECK_FALSE(read(1));  // instead of 2
  memory.give(&logs[3], kept_of(kRow, 1), /*was_read=*/false);
  CHECK_FALSE(memory.has(&logs[3]));
  memory.give(&logs[3], kept_of(3 * kRow, 1), /*was_read=*/true);  // too large
  CHECK_FALSE(memory.has(&logs[3]));
  CHECK(read(0));
  CHECK(read(1));

  const auto taken = memory.take(&logs[0]);  // its room is still counted
  CHECK_FALSE(read(2));
  CHECK_FALSE(memory.has(&logs[1]));
  memory.drop(&logs[0]);
  CHECK_FALSE(read(1));
  CHECK(memory.has(&logs[2]));
  memory.give(&logs[1], kept_of(1, 0), /*was_read=*/true);  // an older one
  CHECK(memory.take(&logs[1])->last == 1);
}

TEST_CASE("groups whose rows were forgotten are read again", "[unit][shared]") {
  MemoryBucket bucket;
  const auto writer = tier_over(bucket);
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    take(*writer, shard);
    write_rows(*writer, shard, kMark, 1, 10'000);
  }
  const auto reader = tier_over(bucket, {.rows_bytes_max = 25'000, .records_bytes_max = 0});
  const auto cost = [&](std::uint32_t shard) {
    return cost_of(bucket, [&] { CHECK(rows_of(*reader, {shard}).size() == 1); });
  };
  for (std::uint32_t shard = 0; shard < 3; ++shard) CHECK(cost(shard) == Cost{2, 2});
  CHECK(cost(2) == Cost{1, 0});
  CHECK(cost(1) == Cost{1, 0});
  CHECK(cost(0) == Cost{2, 2});
}

TEST_CASE("a snapshot that fails is told, and made good later", "[unit][shared]") {
  MemoryBucket bucket;
  bool fails = true;
  const auto refuse = [&](const std::string& name) {
    return fails && name.ends_with(".s") ? Status::unavailable("no snapshots today") : Status();
  };
  std::vector<std::pair<std::string, Status>> told;
  LogTierSettings settings;
  settings.prefix = "test";
  settings.snapshot_after = 8;
  settings.tidied = [&](const std::string& log, const Status& status) {
    told.emplace_back(log, status);
  };
  const auto tier =
      make_log_tier(std::make_unique<WatchedStore>(bucket, WatchedStore::Hooks{.create = refuse}),
                    std::move(settings));
  take(*tier, kShard);
  const ShardMark mark = write_rows(*tier, kShard, kMark, 7);
  REQUIRE(told.size() == 1);
  CHECK(told[0].first == "test/log/07");
  CHECK_THAT(told[0].second.message(), Contains("no snapshots today"));
  CHECK(bucket.objects() == 8);
  fails = false;
  write_rows(*tier, kShard, mark, 8);
  CHECK(told.size() >= 2);
  CHECK(told.back().second.ok());
  CHECK(bucket.objects() < 8);
}

TEST_CASE("one large snapshot is in memory at a time", "[unit][shared]") {
  constexpr std::size_t kLarge = 20u << 20;
  MemoryBucket bucket;
  LogMemory memory(kLarge / 2);
  std::map<std::size_t, int> gets;  // of the snapshot, by the most bytes
  bool others_wait = false;
  const auto watch = [&](const std::string& name, std::size_t bytes_max) {
    if (!name.ends_with(".s")) return;
    ++gets[bytes_max];
    std::thread([&] {
      const std::unique_lock other(memory.large(), std::try_to_lock);
      others_wait = !other.owns_lock();
    }).join();
  };
  WatchedStore store(bucket, WatchedStore::Hooks{.get = watch});
  ShardLog log(store, {.name = "log", .snapshot_after = 1, .memory = &memory});
  LogRecord record;
  record.changes = {{kShard, {}, kMark}};
  record.shard = kShard;
  record.rows.puts = {{"key", std::vector<std::byte>(kLarge)}};
  REQUIRE(log.append(record).ok());
  REQUIRE(log.tidy(std::atomic<bool>(false)).ok());
  ShardLog reader(store, {.name = "log", .memory = &memory});
  std::size_t bytes = 0;
  const auto use = [&](const LogState& state) {
    bytes = state.row_bytes;
    return Status();
  };
  for (int n = 0; n < 2; ++n) {
    REQUIRE(reader.read(use).ok());
    CHECK(bytes == kLarge + 3);
    CHECK(others_wait);
  }
  // The size of the snapshot is learned once.
  REQUIRE(gets.size() == 2);
  CHECK(gets.begin()->second == 1);
  CHECK(gets.rbegin()->second == 2);
  CHECK(memory.kept_bytes() == 0);
  const std::unique_lock other(memory.large(), std::try_to_lock);
  CHECK(other.owns_lock());
}
