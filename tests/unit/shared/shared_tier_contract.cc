#include "tests/unit/shared/shared_tier_contract.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <thread>

namespace precis::testing {
namespace {

using Value = std::vector<std::byte>;
using Change = SharedTier::Change;

// Shards of one group.
constexpr std::uint32_t kA = 3, kB = kA + kShardGroups, kC = kA + 5 * kShardGroups;

ShardMark mark(std::string node, std::uint64_t epoch = 1) {
  return {epoch, 0, false, std::move(node), "instance-of-node"};
}

ShardMark next(ShardMark mark) {
  ++mark.sequence;
  return mark;
}

std::optional<ShardMark> mark_of(SharedTier& tier, std::uint32_t shard) {
  auto marks = tier.marks({{shard}});
  INFO(marks.status().to_string());
  REQUIRE(marks.ok());
  REQUIRE(marks->size() == 1);
  return marks->front();
}

void take(SharedTier& tier, std::uint32_t shard, const ShardMark& to) {
  const Status taken = tier.change_marks({{{shard, mark_of(tier, shard), to}}});
  INFO(taken.to_string());
  REQUIRE(taken.ok());
}

SharedBatch puts(const std::vector<std::pair<std::string, std::string>>& rows) {
  SharedBatch batch;
  for (const auto& [key, value] : rows) batch.puts.emplace_back(key, bytes_of(value));
  return batch;
}

Value noise(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random(seed);
  Value bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A key in which many bytes are those that a storage might treat differently.
std::string odd_key(std::mt19937_64& random) {
  static constexpr unsigned char kBytes[] = {0, 1, 2, 3, '/', 'r', 'e', 0x7f, 0x80, 0xfe, 0xff};
  std::string key(random() % 40, '\0');
  for (char& byte : key) byte = static_cast<char>(kBytes[random() % std::size(kBytes)]);
  return key;
}

void marks_are_absent_then_as_written(SharedTier& tier) {
  CHECK(tier.marks({})->empty());
  CHECK(tier.change_marks({}).ok());
  const std::uint32_t shards[] = {kB, kA, kC};
  CHECK(tier.marks(shards).value() == std::vector<std::optional<ShardMark>>(3));
  ShardMark odd = mark(std::string("\0\xff", 2), 1ull << 62);
  odd.released = true;
  odd.instance = "";
  REQUIRE(tier.change_marks({{{kA, {}, mark("a")}, {kC, {}, odd}}}).ok());
  CHECK(tier.marks(shards).value() ==
        std::vector<std::optional<ShardMark>>{std::nullopt, mark("a"), odd});
  // A shard of another group has its own mark.
  CHECK_FALSE(mark_of(tier, kA + 1));
  take(tier, kA + 1, mark("b"));
  CHECK(mark_of(tier, kA) == mark("a"));
  take(tier, kShards - 1, mark("last"));
  CHECK(mark_of(tier, kShards - 1) == mark("last"));
}

void marks_change_all_or_none(SharedTier& tier) {
  take(tier, kA, mark("a"));
  const auto code = [&](std::vector<Change> changes) { return tier.change_marks(changes).code(); };
  CHECK(code({{kA, {}, mark("b")}}) == StatusCode::kConflict);
  CHECK(code({{kA, mark("a", 2), mark("b")}}) == StatusCode::kConflict);
  CHECK(code({{kB, mark("a"), mark("b")}}) == StatusCode::kConflict);
  CHECK(code({{kB, {}, mark("b")}, {kA, mark("c"), mark("b")}}) == StatusCode::kConflict);
  CHECK(code({{kA, mark("a"), mark("b")}, {kB, mark("c"), mark("b")}}) == StatusCode::kConflict);
  CHECK(mark_of(tier, kA) == mark("a"));
  CHECK_FALSE(mark_of(tier, kB));
  const std::vector<Change> both = {{kA, mark("a"), mark("b")}, {kB, {}, mark("b")}};
  CHECK(code(both) == StatusCode::kOk);
  CHECK(code(both) == StatusCode::kOk);  // as if the first answer was lost
  CHECK(mark_of(tier, kB) == mark("b"));
}

void one_of_many_takes_a_shard(SharedTier& tier) {
  std::vector<std::thread> threads;
  std::atomic<int> taken = 0, refused = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Status done = tier.change_marks({{{kA, {}, mark("node-" + std::to_string(t))}}});
      ++(done.ok() ? taken : refused);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == 1);
  CHECK(refused == 7);
  CHECK(mark_of(tier, kA));
}

void rows_are_written_by_the_holder(SharedTier& tier) {
  CHECK(tier.write(kA, mark("a"), puts({{"k", "v"}})).code() == StatusCode::kMoved);
  take(tier, kB, mark("b"));  // the group has rows now, and still nobody holds kA
  CHECK(tier.write(kA, mark("a"), puts({{"k", "v"}})).code() == StatusCode::kMoved);
  CHECK(rows_of(tier, {kA}).empty());

  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "1"}, {"l", ""}, {"", "none"}})).ok());
  CHECK(mark_of(tier, kA) == next(mark("a")));
  CHECK(rows_of(tier, {kA, kB}) ==
        RowsFound{{{kA, ""}, bytes_of("none")}, {{kA, "k"}, bytes_of("1")}, {{kA, "l"}, {}}});
  SharedBatch second = puts({{"k", "2"}});
  second.deletes = {"l", "absent"};
  REQUIRE(tier.write(kA, next(mark("a")), second).ok());
  REQUIRE(tier.write(kA, next(next(mark("a"))), {}).ok());
  CHECK(mark_of(tier, kA)->sequence == 3);
  CHECK(rows_of(tier, {kA}) == RowsFound{{{kA, ""}, bytes_of("none")}, {{kA, "k"}, bytes_of("2")}});
}

void repeated_write_is_applied_once(SharedTier& tier) {
  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "1"}})).ok());
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "1"}})).ok());
  CHECK(mark_of(tier, kA)->sequence == 1);
  REQUIRE(tier.write(kA, next(mark("a")), puts({{"k", "2"}})).ok());
  CHECK(tier.write(kA, mark("a"), puts({{"k", "1"}})).code() == StatusCode::kMoved);
  CHECK(rows_of(tier, {kA}) == RowsFound{{{kA, "k"}, bytes_of("2")}});
}

void former_holder_cannot_write(SharedTier& tier) {
  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "of a"}})).ok());
  take(tier, kA, mark("b", 2));
  const Status refused = tier.write(kA, next(mark("a")), puts({{"k", "late"}, {"m", "late"}}));
  CHECK(refused.code() == StatusCode::kMoved);
  CHECK_THAT(refused.message(), Catch::Contains("'b'"));
  CHECK(rows_of(tier, {kA}) == RowsFound{{{kA, "k"}, bytes_of("of a")}});
  CHECK(mark_of(tier, kA) == mark("b", 2));
  // The same node in a new process is another holder.
  ShardMark restarted = mark("b", 2);
  restarted.instance = "second";
  take(tier, kA, restarted);
  CHECK(tier.write(kA, mark("b", 2), {}).code() == StatusCode::kMoved);
  ShardMark released = restarted;
  released.released = true;
  take(tier, kA, released);
  CHECK(tier.write(kA, restarted, {}).code() == StatusCode::kMoved);
}

void scan_finds_all_rows_of_its_shards(SharedTier& tier) {
  RowsFound expected;
  const std::pair<std::uint32_t, std::size_t> sizes[] = {{kA, 3000}, {kB, 1025}, {kC, 1}};
  for (const auto& [shard, count] : sizes) {
    take(tier, shard, mark("a"));
    SharedBatch batch;
    for (std::size_t i = 0; i < count; ++i) {
      batch.puts.emplace_back("row " + std::to_string(i), noise(i, i % 100));
      expected[{shard, batch.puts.back().first}] = batch.puts.back().second;
    }
    REQUIRE(tier.write(shard, mark("a"), batch).ok());
  }
  const std::uint32_t without_rows = kA + 7 * kShardGroups, other = kA + 2 * kShardGroups;
  take(tier, other, mark("a"));
  REQUIRE(tier.write(other, mark("a"), puts({{"not asked for", ""}})).ok());
  CHECK(rows_of(tier, {kC, without_rows, kA, kB}) == expected);
  CHECK(rows_of(tier, {}).empty());
  CHECK(rows_of(tier, {kA + 1}).empty());  // a group that nobody has written to

  int visited = 0;
  const Status stopped = tier.scan({{kA}}, [&](std::uint32_t, std::string_view, Bytes) {
    return ++visited == 10 ? Status::canceled("enough") : Status();
  });
  CHECK(stopped == Status::canceled("enough"));
  CHECK(visited == 10);
}

void visitor_may_call_the_tier(SharedTier& tier) {
  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "1"}, {"l", "2"}})).ok());
  ShardMark now = next(mark("a"));
  REQUIRE(tier.scan({{kA}},
                    [&](std::uint32_t shard, std::string_view key, Bytes) {
                      SharedBatch batch;
                      batch.deletes.emplace_back(key);
                      PRECIS_TRY(tier.write(shard, now, batch));
                      now = next(now);
                      return Status();
                    })
              .ok());
  CHECK(rows_of(tier, {kA}).empty());
}

void keys_and_values_have_any_bytes(SharedTier& tier) {
  take(tier, kA, mark("a"));
  take(tier, kB, mark("a"));
  std::mt19937_64 random(1);
  RowsFound expected;
  ShardMark now = mark("a");
  for (int round = 0; round < 5; ++round) {
    SharedBatch batch;
    std::map<std::string, Value> rows;
    for (int i = 0; i < 500; ++i) rows[odd_key(random)] = noise(random(), random() % 30);
    for (const auto& [key, value] : rows) {
      if (expected.contains({kA, key}) && random() % 2 == 0) {
        batch.deletes.push_back(key);
        expected.erase({kA, key});
      } else {
        batch.puts.emplace_back(key, value);
        expected[{kA, key}] = value;
      }
    }
    REQUIRE(tier.write(kA, now, batch).ok());
    now = next(now);
  }
  CHECK(rows_of(tier, {kA, kB}) == expected);
}

void objects_come_back(SharedTier& tier) {
  constexpr std::size_t kPiece = kContractPieceBytes;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPiece - 1, kPiece, kPiece + 1,
                                 3 * kPiece, 3 * kPiece + 7}) {
    CAPTURE(size);
    const std::string name = "Object-" + std::to_string(size);
    const Value value = noise(size, size);
    Value into(size);
    CHECK(tier.read_object(name, into).code() == StatusCode::kNotFound);
    REQUIRE(tier.write_object(name, value).ok());
    REQUIRE(tier.write_object(name, value).ok());
    REQUIRE(tier.read_object(name, into).ok());
    CHECK(into == value);
    for (const std::size_t other : {std::size_t{0}, size / 2, size - 1, size + 1, size + kPiece,
                                    2 * size, size - size % kPiece}) {
      if (other == size || other > 10 * kPiece) continue;
      CAPTURE(other);
      Value wrong(other);
      CHECK(tier.read_object(name, wrong).code() == StatusCode::kCorruption);
    }
    REQUIRE(tier.remove_object(name, size).ok());
    REQUIRE(tier.remove_object(name, size).ok());
    CHECK(tier.read_object(name, into).code() == StatusCode::kNotFound);
  }
}

void rows_are_read_by_their_keys(SharedTier& tier) {
  const std::vector<std::string> keys = {"k", std::string("\0\1", 2), "absent", "k"};
  CHECK(tier.rows(kA, keys).value() == std::vector<std::optional<Value>>(4));
  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "v"}, {keys[1], ""}, {"other", "x"}})).ok());
  const auto found = tier.rows(kA, std::span(keys).first(3)).value();
  CHECK(found == std::vector<std::optional<Value>>{bytes_of("v"), Value(), std::nullopt});
  CHECK(tier.rows(kA, {}).value().empty());
}

void objects_have_names_of_their_own(SharedTier& tier) {
  const std::vector<std::string> names = {"a", "a.1", "a-1", "common", "rows.3", "A", "1"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    REQUIRE(tier.write_object(names[i], noise(i, 2 * kContractPieceBytes)).ok());
  }
  take(tier, kA, mark("a"));
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "v"}})).ok());
  REQUIRE(tier.write_common(puts({{"c", "v"}})).ok());
  for (std::size_t i = 0; i < names.size(); ++i) {
    Value into(2 * kContractPieceBytes);
    REQUIRE(tier.read_object(names[i], into).ok());
    CHECK(into == noise(i, into.size()));
    REQUIRE(tier.remove_object(names[i], into.size()).ok());
  }
  CHECK(rows_of(tier, {kA}).size() == 1);
  CHECK(common_rows_of(tier).size() == 1);
}

void all_objects_are_listed(SharedTier& tier) {
  using Sizes = std::map<std::string, std::uint64_t>;
  const auto listed = [&] {
    Sizes sizes;
    const Status status = tier.list_objects([&](const std::string& name, std::uint64_t size_bytes) {
      sizes[name] = std::max(sizes[name], size_bytes);
      return Status();
    });
    INFO(status.to_string());
    REQUIRE(status.ok());
    return sizes;
  };
  const auto names_of = [](const Sizes& sizes) {
    std::set<std::string> names;
    for (const auto& [name, size_bytes] : sizes) names.insert(name);
    return names;
  };
  CHECK(listed().empty());
  std::set<std::string> expected = {"0001-2.A"};
  for (int i = 0; i < 30; ++i) expected.insert("object-" + std::to_string(i));
  for (const std::string& name : expected) {
    REQUIRE(tier.write_object(name, noise(1, name.size())).ok());
  }
  const std::string large = "large", larger = "larger";
  REQUIRE(tier.write_object(large, noise(2, kContractPieceBytes)).ok());
  REQUIRE(tier.write_object(larger, noise(3, 3 * kContractPieceBytes + 7)).ok());
  take(tier, kA, mark("a"));  // rows are no objects
  REQUIRE(tier.write(kA, mark("a"), puts({{"k", "v"}})).ok());
  REQUIRE(tier.write_common(puts({{"c", "v"}})).ok());
  const Sizes sizes = listed();
  const auto rest = expected;
  expected.insert({large, larger});
  CHECK(names_of(sizes) == expected);
  const auto stopped = [](const std::string&, std::uint64_t) { return Status::canceled("enough"); };
  CHECK(tier.list_objects(stopped) == Status::canceled("enough"));
  // All pieces are removed with the sizes that were listed.
  for (const std::string& name : {large, larger}) {
    REQUIRE(tier.remove_object(name, sizes.at(name)).ok());
  }
  CHECK(names_of(listed()) == rest);
}

void common_rows_are_written_by_all(SharedTier& tier) {
  CHECK(common_rows_of(tier).empty());
  std::map<std::string, Value> expected;
  SharedBatch many;
  std::mt19937_64 random(2);
  for (int i = 0; i < 2500; ++i) {
    const std::string key = std::to_string(i) + odd_key(random);
    many.puts.emplace_back(key, bytes_of(std::to_string(i)));
    expected[key] = many.puts.back().second;
  }
  REQUIRE(tier.write_common(many).ok());
  CHECK(common_rows_of(tier) == expected);
  SharedBatch second = puts({{"", "empty key"}});
  second.deletes = {many.puts.front().first, "absent"};
  REQUIRE(tier.write_common(second).ok());
  expected.erase(many.puts.front().first);
  expected[""] = bytes_of("empty key");
  CHECK(common_rows_of(tier) == expected);
  CHECK(tier.scan_common([](std::string_view, Bytes) { return Status::canceled("enough"); }) ==
        Status::canceled("enough"));
}

}  // namespace

std::vector<std::byte> bytes_of(const std::string& text) {
  const Bytes bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

RowsFound rows_of(SharedTier& tier, const std::vector<std::uint32_t>& shards) {
  RowsFound rows;
  const Status scanned =
      tier.scan(shards, [&](std::uint32_t shard, std::string_view key, Bytes value) {
        const bool is_new =
            rows.emplace(std::pair(shard, key), Value(value.begin(), value.end())).second;
        return is_new ? Status() : Status::internal("a row comes twice");
      });
  INFO(scanned.to_string());
  REQUIRE(scanned.ok());
  return rows;
}

std::map<std::string, std::vector<std::byte>> common_rows_of(SharedTier& tier) {
  std::map<std::string, Value> rows;
  const Status scanned = tier.scan_common([&](std::string_view key, Bytes value) {
    const bool is_new = rows.emplace(key, Value(value.begin(), value.end())).second;
    return is_new ? Status() : Status::internal("a row comes twice");
  });
  INFO(scanned.to_string());
  REQUIRE(scanned.ok());
  return rows;
}

const std::vector<ContractCase>& shared_tier_contract() {
  static const std::vector<ContractCase> kCases = {
      {"marks are absent, and then as they were written", marks_are_absent_then_as_written},
      {"marks change all or none", marks_change_all_or_none},
      {"one of many takes a shard", one_of_many_takes_a_shard},
      {"rows are written by the holder only", rows_are_written_by_the_holder},
      {"a write that is repeated is applied once", repeated_write_is_applied_once},
      {"a former holder cannot write", former_holder_cannot_write},
      {"a scan finds all rows of its shards, and no others", scan_finds_all_rows_of_its_shards},
      {"a visitor may call the tier", visitor_may_call_the_tier},
      {"rows are read by their keys", rows_are_read_by_their_keys},
      {"keys and values have any bytes", keys_and_values_have_any_bytes},
      {"objects come back, and only with their own size", objects_come_back},
      {"objects have names of their own", objects_have_names_of_their_own},
      {"all objects are listed", all_objects_are_listed},
      {"common rows are written by all", common_rows_are_written_by_all},
  };
  return kCases;
}

}  // namespace precis::testing
