#include "cachesvc/server/shard_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "cachesvc/base/runtime.h"
#include "cachesvc/shared/shared_tier.h"

namespace {

using namespace precis;
using Shards = ShardGroups::Shards;

Shards all_shards() {
  Shards shards(kShards);
  for (std::uint32_t shard = 0; shard < kShards; ++shard) shards[shard] = shard;
  return shards;
}

bool always() { return true; }

}  // namespace

TEST_CASE("each shard has its turn once, with others of its group alone", "[server]") {
  MachineRuntime runtime;
  ShardGroups groups(runtime, "disk");
  for (std::uint32_t shard = 7; shard < kShards; shard += 1000) groups.note_asked(shard);
  std::mutex mutex;
  Shards seen;
  bool is_mixed = false;
  const auto work = [&](const Shards& shards) -> Status {
    const std::lock_guard lock(mutex);
    for (const std::uint32_t shard : shards) is_mixed |= group_of(shard) != group_of(shards[0]);
    seen.insert(seen.end(), shards.begin(), shards.end());
    return {};
  };
  CHECK(groups.run(all_shards(), work, always).ok());
  std::ranges::sort(seen);
  CHECK(seen == all_shards());
  CHECK_FALSE(is_mixed);
}

TEST_CASE("shards that clients ask for come before others", "[server]") {
  MachineRuntime runtime;
  ShardGroups groups(runtime, "disk");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Shards> order;
  bool go_on = false;
  const auto work = [&](const Shards& shards) -> Status {
    std::unique_lock lock(mutex);
    order.push_back(shards);
    changed.notify_all();
    changed.wait(lock, [&] { return go_on; });
    return {};
  };
  std::thread run([&] { CHECK(groups.run(all_shards(), work, always).ok()); });
  Shards asked;
  std::size_t before = 0;
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return order.size() == 8; });  // one for each worker
    before = order.size();
    std::set<std::uint32_t> taken;
    for (const Shards& shards : order) taken.insert(group_of(shards.front()));
    for (std::uint32_t group = 0; group < kShardGroups; ++group) {
      if (!taken.contains(group)) asked.push_back(group + 3 * kShardGroups);
    }
    // All of one group, too.
    for (std::uint32_t shard = group_of(asked[5]); shard < kShards; shard += kShardGroups) {
      if (shard != asked[5]) asked.push_back(shard);
    }
    for (const std::uint32_t shard : asked) groups.note_asked(shard);
    go_on = true;
  }
  changed.notify_all();
  run.join();
  Shards turns;
  for (std::size_t i = before; i < order.size(); ++i) {
    turns.insert(turns.end(), order[i].begin(), order[i].end());
  }
  std::size_t last = 0;
  for (const std::uint32_t shard : asked) {
    last =
        std::max(last, static_cast<std::size_t>(std::ranges::find(turns, shard) - turns.begin()));
  }
  // Each worker may have had a group of others meanwhile.
  CHECK(last < asked.size() + 8 * kShards / kShardGroups);
}

TEST_CASE("work on shards ends if the storage is unavailable, and not for other errors",
          "[server]") {
  MachineRuntime runtime;
  ShardGroups groups(runtime, "disk");
  std::atomic<int> calls = 0;
  const auto failing = [&](Status status) {
    calls = 0;
    return groups.run(
        all_shards(),
        [&](const Shards&) {
          ++calls;
          return status;
        },
        always);
  };
  CHECK(failing(Status::conflict("odd")).message() == "odd");
  CHECK(calls == kShardGroups);
  CHECK(failing(Status::unavailable("gone")).message() == "gone");
  CHECK(calls <= 8);
  calls = 0;
  const auto work = [&](const Shards&) -> Status {
    ++calls;
    return {};
  };
  CHECK(groups.run(all_shards(), work, [] { return false; }).code() == StatusCode::kUnavailable);
  CHECK(calls == 0);
  CHECK(groups.run({}, work, always).ok());
}
