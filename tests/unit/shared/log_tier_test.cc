// The shared tier in the logs of an object store.
#include "cachesvc/shared/log_tier.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "cachesvc/shared/log_record.h"
#include "cachesvc/shared/shard_log.h"
#include "tests/unit/shared/memory_bucket.h"
#include "tests/unit/shared/shared_tier_contract.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint32_t kShard = 7;
const ShardMark kMark{1, 0, false, "node", "instance"};

std::unique_ptr<SharedTier> tier_over(MemoryBucket& bucket, std::uint64_t snapshot_after = 128) {
  return make_log_tier(std::make_unique<BucketClient>(bucket),
                       {.prefix = "test", .snapshot_after = snapshot_after, .tidier = nullptr});
}

// Writes `count` rows, one after another.
ShardMark write_rows(SharedTier& tier, ShardMark mark, int count) {
  for (int n = 0; n < count; ++n, ++mark.sequence) {
    SharedBatch batch;
    batch.puts.emplace_back(std::to_string(mark.sequence), bytes_of("row"));
    REQUIRE(tier.write(kShard, mark, batch).ok());
  }
  return mark;
}

// The write with this number, by the holder `instance`; the first takes the shard.
LogRecord write_of(std::uint64_t number, const std::string& instance = kMark.instance) {
  LogRecord record;
  const ShardMark before{1, number - 2, false, "node", kMark.instance};
  record.changes = {{kShard, {}, {1, number - 1, false, "node", instance}}};
  if (number > 1) record.changes.front().from = before;
  record.shard = kShard;
  record.rows.puts = {{instance + std::to_string(number), {}}};
  return record;
}

decltype(LogState::rows) rows_in(ShardLog& log) {
  decltype(LogState::rows) rows;
  const auto take = [&](const LogState& state) {
    rows = state.rows;
    return Status();
  };
  REQUIRE(log.read(take).ok());
  return rows;
}

// Gives wrong lists, as a faulty storage would.
class OtherLists final : public ObjectStore {
 public:
  OtherLists(MemoryBucket& bucket, std::function<void(Page&)> spoil)
      : right_(bucket), spoil_(std::move(spoil)) {}
  Result<bool> create(const std::string& name, Bytes value) override {
    return right_.create(name, value);
  }
  Status put(const std::string& name, Bytes value) override { return right_.put(name, value); }
  Result<std::vector<std::byte>> get(const std::string& name, std::size_t bytes_max) override {
    return right_.get(name, bytes_max);
  }
  Status get_into(const std::string& name, MutableBytes into) override {
    return right_.get_into(name, into);
  }
  Status remove(const std::string& name) override { return right_.remove(name); }
  Result<Page> list(const std::string& prefix, const std::string& after) override {
    PRECIS_ASSIGN(Page page, right_.list(prefix, after));
    spoil_(page);
    return page;
  }

 private:
  BucketClient right_;
  const std::function<void(Page&)> spoil_;
};

LogRecord some_record() {
  LogRecord record;
  record.changes = {{kShard, {}, kMark}, {kShard + 64, kMark, {2, 3, true, "", "other"}}};
  record.shard = kShard;
  record.rows.puts = {{"key", bytes_of("value")}, {std::string("\0", 1), {}}};
  record.rows.deletes = {"gone", ""};
  return record;
}

}  // namespace

TEST_CASE("the shared tier in an object store keeps the contract", "[unit][shared]") {
  for (const std::size_t page : {std::size_t{2}, std::size_t{1000}}) {
    for (const auto& contract : shared_tier_contract()) {
      DYNAMIC_SECTION(contract.name << ", " << page << " names a list") {
        MemoryBucket bucket(page);
        contract.run(*tier_over(bucket, 2));
      }
    }
  }
}

TEST_CASE("a log in an object store stays short, and a new reader has all of it",
          "[unit][shared]") {
  MemoryBucket bucket;
  const auto tier = tier_over(bucket, 8);
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  const ShardMark last = write_rows(*tier, kMark, 100);
  CHECK(bucket.objects() <= 9);
  const auto reader = tier_over(bucket, 8);
  CHECK(reader->marks({{kShard}}).value().front() == last);
  CHECK(rows_of(*reader, {kShard}).size() == 100);
}

TEST_CASE("a record that is created again after its snapshot has no effect", "[unit][shared]") {
  constexpr std::uint64_t kRecords = 5;
  bool is_late = false;  // no call of the reader is as late as the change
  for (int call = 0; !is_late; ++call) {
    is_late = true;
    for (std::uint64_t again = 1; again <= kRecords + 2; ++again) {
      for (const bool has_begun : {false, true}) {
        CAPTURE(call, again, has_begun);
        MemoryBucket bucket;
        BucketClient client(bucket);
        ShardLog log(client, {.name = "log"}), tidier(client, {.name = "log", .snapshot_after = 1});
        int calls = -1;
        const auto change = [&] {
          if (calls < 0 || calls++ != call) return BucketClient::Fault::kNone;
          is_late = false;
          REQUIRE(log.append(write_of(kRecords + 1)).ok());
          REQUIRE(tidier.tidy(std::atomic<bool>(false)).ok());
          const LogPlace place{"log", again};
          const std::string digits = "log/0000000000000000000";
          bucket.create(digits + std::to_string(again), encode(place, write_of(again, "other")));
          return BucketClient::Fault::kNone;
        };
        BucketClient changing(bucket, {change, nullptr});
        LogMemory memory(1u << 20);
        ShardLog reader(changing, {.name = "log", .memory = has_begun ? &memory : nullptr});
        for (std::uint64_t n = 1; n <= kRecords; ++n) {
          REQUIRE(log.append(write_of(n)).ok());
          if (has_begun && n == 2) rows_in(reader);
        }
        calls = 0;
        const LogState marks = reader.marks().value();
        // The new record has an effect only if its number is after the snapshot's.
        if (again <= kRecords + 1) CHECK(marks.mark_of(kShard)->instance == kMark.instance);
        CHECK(marks.mark_of(kShard)->sequence + 1 >= kRecords);
        calls = 0;
        ShardLog fresh(changing, {.name = "log"});
        for (ShardLog* const log_read : {&reader, &fresh}) {
          const auto rows = rows_in(*log_read);
          CHECK(rows.size() >= kRecords);
          const bool has_other = rows.contains({kShard, "other" + std::to_string(again)});
          CHECK_FALSE((has_other && again <= kRecords + 1));
        }
      }
    }
  }
}

TEST_CASE("a record that is missing in a log is an error, and what is after it is not used",
          "[unit][shared]") {
  MemoryBucket bucket;
  const auto tier = tier_over(bucket);
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  const ShardMark last = write_rows(*tier, kMark, 5);
  const std::string name = "0000000000000000000" + std::to_string(GENERATE(1, 3));
  bucket.remove("test/log/07/" + name);
  const auto reader = tier_over(bucket);
  const Status status = reader->marks({{kShard}}).status();
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK_THAT(status.message(), Contains(name));
  CHECK(reader->write(kShard, last, {}).code() == StatusCode::kCorruption);
  const auto no_row = [](std::uint32_t, std::string_view, Bytes) { return Status(); };
  CHECK(reader->scan({{kShard}}, no_row).code() == StatusCode::kCorruption);
}

TEST_CASE("a list that is cut off or not in order is no end of a log", "[unit][shared]") {
  MemoryBucket bucket;
  const auto tier = tier_over(bucket);
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  write_rows(*tier, kMark, 3);
  bool wrong = false;
  const bool is_cut_off = GENERATE(true, false);
  const auto spoil = [&](ObjectStore::Page& page) {
    if (!wrong) return;
    if (is_cut_off) page = {{}, true};
    std::ranges::reverse(page.names);
  };
  const auto reader = make_log_tier(std::make_unique<OtherLists>(bucket, spoil),
                                    {.prefix = "test", .tidier = nullptr});
  const auto fails = [&] {
    const auto no_row = [](std::uint32_t, std::string_view, Bytes) { return Status(); };
    wrong = true;
    const auto marks = reader->marks({{kShard}}).status();
    const auto rows = reader->scan({{kShard}}, no_row);
    wrong = false;
    return marks.code() == StatusCode::kUnavailable && rows.code() == StatusCode::kUnavailable;
  };
  CHECK(fails());
  REQUIRE(reader->marks({{kShard}}).ok());
  if (is_cut_off) CHECK(fails());
  CHECK(reader->marks({{kShard}}).value().front()->sequence == kMark.sequence + 3);
}

TEST_CASE("the log of a group that is removed while it is in use is an error", "[unit][shared]") {
  MemoryBucket bucket;
  const auto tier = tier_over(bucket);
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  REQUIRE(tier->marks({{kShard}}).ok());
  bucket.remove("test/log/07/00000000000000000001");
  CHECK(tier->marks({{kShard}}).status().code() == StatusCode::kCorruption);
  CHECK(tier->write(kShard, kMark, {}).code() == StatusCode::kCorruption);
}

TEST_CASE("a node that others have left far behind writes at once", "[unit][shared]") {
  constexpr std::uint32_t kOther = kShard + kShardGroups;  // in the same group
  MemoryBucket bucket;
  const auto busy = tier_over(bucket, 1000), late = tier_over(bucket, 1000);
  REQUIRE(late->change_marks(std::array{SharedTier::Change{kOther, {}, kMark}}).ok());
  REQUIRE(busy->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  write_rows(*busy, kMark, 200);
  CHECK(late->write(kOther, kMark, {}).ok());
}

TEST_CASE("a damaged record of a log is an error", "[unit][shared]") {
  MemoryBucket bucket;
  const auto tier = tier_over(bucket);
  REQUIRE(tier->change_marks(std::array{SharedTier::Change{kShard, {}, kMark}}).ok());
  write_rows(*tier, kMark, 2);
  const std::string third = "test/log/07/00000000000000000003";
  std::vector<std::byte> bytes;
  REQUIRE(bucket.get("test/log/07/00000000000000000002", bytes));
  SECTION("it is another one") { bucket.put(third, bytes); }
  SECTION("a bit is wrong") {
    REQUIRE(bucket.get(third, bytes));
    bytes.back() ^= std::byte{1};
    bucket.put(third, bytes);
  }
  SECTION("it is empty") { bucket.put(third, {}); }
  CHECK(tier_over(bucket)->marks({{kShard}}).status().code() == StatusCode::kCorruption);
}

TEST_CASE("a log whose common rows a person has removed begins anew", "[unit][shared]") {
  MemoryBucket bucket;
  const auto a = tier_over(bucket), b = tier_over(bucket);
  SharedBatch batch;
  batch.puts.emplace_back("cluster", bytes_of("old"));
  for (int n = 0; n < 3; ++n) REQUIRE(a->write_common(batch).ok());
  for (int n = 1; n <= 3; ++n) {
    bucket.remove("test/log/common/0000000000000000000" + std::to_string(n));
  }
  CHECK(common_rows_of(*a).empty());
  batch.puts.front().second = bytes_of("new");
  REQUIRE(b->write_common(batch).ok());
  CHECK(common_rows_of(*a).at("cluster") == bytes_of("new"));
  REQUIRE(a->write_common(batch).ok());
  CHECK(common_rows_of(*b).size() == 1);
}

TEST_CASE("records and snapshots of a log come back from their bytes", "[unit][shared]") {
  const LogPlace place{"log", 12};
  const LogRecord record = some_record();
  const auto decoded = decode_record(place, encode(place, record)).value();
  CHECK(encode(place, decoded) == encode(place, record));
  LogState state;
  state.marks = {{kShard, kMark}};
  state.rows = {{{kShard, "key"}, bytes_of("value")}, {{kShard + 64, ""}, {}}};
  const auto snapshot = decode_snapshot(place, encode(place, state)).value();
  CHECK(snapshot.marks == state.marks);
  CHECK(snapshot.rows == state.rows);
  CHECK(decode_record(place, encode(place, state)).status().code() == StatusCode::kCorruption);
  CHECK(decode_snapshot(place, encode(place, record)).status().code() == StatusCode::kCorruption);
  for (const LogPlace& other : {LogPlace{"log", 13}, LogPlace{"other", 12}}) {
    CHECK(decode_record(other, encode(place, record)).status().code() == StatusCode::kCorruption);
  }
}

TEST_CASE("damaged records of a log are refused", "[unit][shared]") {
  const LogPlace place{"log", 12};
  const auto valid = encode(place, some_record());
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = valid;
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    if (i % 3 != 0) bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
    const auto code = decode_record(place, bytes).status().code();
    CHECK(code == StatusCode::kCorruption);
  }
}
