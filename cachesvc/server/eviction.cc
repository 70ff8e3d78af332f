#include "cachesvc/server/eviction.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/shared/tiered_store.h"

namespace precis {
namespace {

constexpr unsigned kAskers = 8;  // they wait for the shared storage
// The segments of one step, so that other changes need not wait long for it.
constexpr std::size_t kSegmentsAtOnce = 64;

}  // namespace

Eviction::Eviction(Parts parts)
    : parts_(std::move(parts)), threads_(parts_.runtime.make_executor("evict", kAskers)) {}

Eviction::Done Eviction::run(std::uint64_t bytes, const std::vector<bool>& own,
                             const std::function<void()>& freed) {
  Done done;
  const auto order = parts_.catalog.eviction_order(own);
  for (auto next = order.begin(); next != order.end() && done.bytes < bytes && !stopped_;) {
    std::vector<Evictable> some;
    std::uint64_t some_bytes = 0;
    for (; next != order.end() && !stopped_; ++next) {
      if (some.size() == kSegmentsAtOnce || done.bytes + some_bytes >= bytes) break;
      const std::uint64_t local = parts_.catalog.local_bytes((*next)->id);
      if (local == 0) continue;
      some.push_back({*next});
      some_bytes += local;
    }
    // Segments without an answer stay.
    const Status asked = ask(some, own);
    if (done.problem.ok()) done.problem = asked;
    if (asked.code() == StatusCode::kUnavailable) return done;
    const auto evicted = parts_.catalog.evict(some);
    if (!evicted.ok()) {
      done.problem = evicted.status();
      return done;
    }
    done.segments += evicted->segments;
    done.bytes += evicted->bytes;
    if (evicted->segments > 0) freed();
  }
  return done;
}

Status Eviction::ask(std::vector<Evictable>& segments, const std::vector<bool>& own) {
  std::map<std::uint32_t, std::vector<Evictable*>> shards;
  for (Evictable& each : segments) shards[*each.row->shard].push_back(&each);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t left = shards.size();
  Status first;
  for (const auto& [shard, group] : shards) {
    const bool is_own = shard < own.size() && own[shard];
    threads_->post([&, shard = shard, &of_shard = group, is_own] {
      const Status status = ask_of(shard, of_shard, is_own);
      const std::lock_guard lock(mutex);
      if (first.ok()) first = status;
      if (--left == 0) changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  parts_.runtime.clock().wait(changed, lock, Clock::Time::max(), [&] { return left == 0; });
  return first;
}

Status Eviction::ask_of(std::uint32_t shard, std::span<Evictable* const> segments, bool is_own) {
  if (stopped_) return Status::unavailable("the service is stopping");
  std::vector<std::string> keys;
  for (const Evictable* each : segments) {
    keys.push_back(shared_key(Table::kSegments, segment_key(each->row->id)));
  }
  PRECIS_ASSIGN(const auto rows, parts_.tier.rows(shard, keys));
  for (std::size_t i = 0; i < segments.size() && i < rows.size(); ++i) {
    if (!rows[i]) continue;
    // An unreadable row says nothing about the objects, so the local copy stays.
    auto row = decode_segment_row(*rows[i]);
    if (row.ok() && row->id == segments[i]->row->id) segments[i]->shared = std::move(*row);
  }
  const auto has_it = [](const Evictable* each) { return each->shared.has_value(); };
  if (is_own || std::ranges::all_of(segments, has_it)) return {};
  PRECIS_ASSIGN(const auto marks, parts_.tier.marks(std::array{shard}));
  const auto& mark = marks.front();
  const bool is_others = mark && !mark->node.empty() && mark->node != parts_.disk;
  for (Evictable* each : segments) each->is_others = is_others;
  return {};
}

}  // namespace precis
