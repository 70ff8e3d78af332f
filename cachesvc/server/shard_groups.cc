#include "cachesvc/server/shard_groups.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "cachesvc/shared/shared_tier.h"

namespace precis {
namespace {

constexpr unsigned kWorkers = 8;  // they wait for the shared storage
// A client that waits for a shard asks for it more often than this.
constexpr std::uint64_t kAskedNs = 1'000'000'000;

}  // namespace

ShardGroups::ShardGroups(Runtime& runtime, const std::string& disk)
    : clock_(runtime.clock()),
      first_(std::hash<std::string>()(disk) % kShardGroups),
      workers_(runtime.make_executor("shared", kWorkers)) {}

void ShardGroups::note_asked(std::uint32_t shard) { asked_ns_[shard] = clock_.monotonic_ns(); }

Status ShardGroups::run(const Shards& shards, const Work& work,
                        const std::function<bool()>& may_go_on) {
  std::vector<Shards> by_group(kShardGroups);
  for (const std::uint32_t shard : shards) by_group[group_of(shard)].push_back(shard);
  // Nodes that run at the same time begin at different groups, so that they wait less for each
  // other.
  std::ranges::rotate(by_group, by_group.begin() + static_cast<std::ptrdiff_t>(first_));
  std::erase_if(by_group, &Shards::empty);
  std::deque<Shards> groups(by_group.begin(), by_group.end());
  std::mutex mutex;  // guards `groups` and what follows
  std::condition_variable changed;
  std::size_t working = std::min<std::size_t>(kWorkers, groups.size());
  Status first;
  // Each call to a storage that does not answer takes long, so one failure is enough.
  bool fails = false;
  const auto work_on = [&] {
    std::unique_lock lock(mutex);
    while (!groups.empty()) {
      const auto at = next_of(groups);
      const Shards next = std::move(*at);
      groups.erase(at);
      const bool gives_up = fails;
      lock.unlock();
      const Status status = !gives_up && may_go_on() ? work(next) : Status::unavailable("given up");
      lock.lock();
      fails |= status.code() == StatusCode::kUnavailable;
      if (first.ok()) first = status;
    }
    if (--working == 0) changed.notify_all();
  };
  for (std::size_t worker = working; worker > 0; --worker) workers_->post(work_on);
  std::unique_lock lock(mutex);
  clock_.wait(changed, lock, Clock::Time::max(), [&] { return working == 0; });
  return first;
}

// The first group in which clients ask for a shard, or else the first.
std::deque<ShardGroups::Shards>::iterator ShardGroups::next_of(std::deque<Shards>& groups) const {
  const std::uint64_t now_ns = clock_.monotonic_ns();
  const auto is_asked = [&](std::uint32_t shard) {
    const std::uint64_t at_ns = asked_ns_[shard];
    return at_ns != 0 && now_ns < at_ns + kAskedNs;
  };
  const auto asked = std::ranges::find_if(
      groups, [&](const Shards& group) { return std::ranges::any_of(group, is_asked); });
  return asked == groups.end() ? groups.begin() : asked;
}

}  // namespace precis
