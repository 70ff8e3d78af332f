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
  std::set<std::uint32_t> begun, asked;  // groups
  bool go_on = false, is_late = false;
  const auto work = [&](const Shards& shards) -> Status {
    std::unique_lock lock(mutex);
    begun.insert(group_of(shards.front()));
    changed.notify_all();
    if (!go_on) {
      changed.wait(lock, [&] { return go_on; });
      return {};
    }
    const auto all_asked = [&] { return std::ranges::includes(begun, asked); };
    is_late |= !changed.wait_for(lock, std::chrono::seconds(10), all_asked);
    return {};
  };
  std::thread run([&] { CHECK(groups.run(all_shards(), work, always).ok()); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return begun.size() == 8; });  // one for each worker
    // The groups that the node would otherwise come to last.
    std::uint32_t group = *begun.begin();
    while (begun.contains(group)) group = (group + kShardGroups - 1) % kShardGroups;
    for (std::uint32_t last = 0; last < 4; ++last) {
      asked.insert((group + kShardGroups - last) % kShardGroups);
    }
    for (const std::uint32_t other : asked) groups.note_asked(other + 3 * kShardGroups);
    go_on = true;
  }
  changed.notify_all();
  run.join();
  CHECK_FALSE(is_late);
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
