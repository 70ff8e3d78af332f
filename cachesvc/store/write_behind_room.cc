// Chooses the deferred changes to drop, with their dependents (write_behind.h).
#include <algorithm>
#include <set>
#include <utility>

#include "cachesvc/store/write_behind.h"

namespace precis {
namespace {

bool has_written(const WriteBehind::Change& change) {
  return std::ranges::any_of(change.payload.values, [](auto& value) { return value->over(); });
}

}  // namespace

// Dropping a change that replaces payload would bring back the older value with its row, and the
// replaced change must not be dropped after it. So neither may be dropped. Trims replace payload;
// they are few.
void WriteBehind::keep_what_is_replaced(Change& change) {
  const std::set<std::string> keys(change.payload.keys.begin(), change.payload.keys.end());
  change.kept = std::ranges::any_of(keys, [&](auto& key) { return index_.find(key).ok(); });
  if (!change.kept) return;
  for (const auto& older : backlog_.copy()) {
    const bool is_replaced =
        std::ranges::any_of(older->payload.keys, [&](auto& key) { return keys.contains(key); });
    if (is_replaced) backlog_.keep(*older);
  }
}

// Drops the oldest changes first, and partly written ones only if no others are left. Otherwise no
// put would ever be written completely if puts arrive faster than the disk writes.
bool WriteBehind::make_room_for(const Change& change) {
  if (change.payload.size_bytes > bytes_max_ || change.row_bytes > bytes_max_) return false;
  std::uint64_t left = bytes_ + change.payload.size_bytes;
  std::uint64_t rows_left = backlog_.row_bytes() + change.row_bytes;
  const auto has_room = [&] { return left <= bytes_max_ && rows_left <= bytes_max_; };
  if (has_room()) return true;
  // Changes that the new change depends on stay.
  const std::set<const Change*> needed = backlog_.needed_for(change.rests_on);
  const auto stays = [&](const std::shared_ptr<Change>& one) {
    return one->settling || one->kept || needed.contains(one.get());
  };
  std::set<std::shared_ptr<Change>> going;
  for (const bool partly_written : {false, true}) {
    for (const auto& [place, each] : backlog_.droppable()) {
      if (has_room()) break;
      // A superseded change may have only rows left.
      if (each->payload.keys.empty() || stays(each)) continue;
      if (has_written(*each) != partly_written) continue;
      const auto all = backlog_.resting_on(each);
      if (std::ranges::any_of(all, stays)) continue;
      for (const auto& one : all) {
        if (!going.insert(one).second) continue;
        left -= one->payload.size_bytes;
        rows_left -= one->row_bytes;
      }
    }
  }
  if (!has_room()) return false;
  for (const auto& each : going) drop(each);
  return true;
}

void WriteBehind::drop(const std::shared_ptr<Change>& change) {
  // A session's row has no name: its owner learns from the dropped tip, which has a name.
  if (!change->name.empty()) dropped_.push_back(change->name);
  backlog_.remove(change);
  change->dropped = true;
  index_.forget(change->payload);
  bytes_ -= change->payload.size_bytes;
  // The payload store does not write values without an owner.
  change->payload = {};
  change->rows = {};
  change->row_values.clear();
}

std::vector<std::string> WriteBehind::take_dropped() {
  const std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

}  // namespace precis
