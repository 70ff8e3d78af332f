// Changes that give way: which, and what goes with them (write_behind.h).
#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include "cachesvc/store/write_behind.h"

namespace precis {
namespace {

bool has_written(const WriteBehind::Change& change) {
  return std::ranges::any_of(change.payload.values, [](auto& value) { return value->over(); });
}

}  // namespace

// A change that replaces payload leaves the older value behind when it gives way, and its row with
// it; and what it replaces must not go after it. Trims do so, and they are few.
void WriteBehind::keep_what_is_replaced(Change& change) {
  const std::set<std::string> keys(change.payload.keys.begin(), change.payload.keys.end());
  change.kept = std::ranges::any_of(keys, [&](auto& key) { return index_.find(key).ok(); });
  if (!change.kept) return;
  for (const auto& older : backlog_) {
    older->kept = older->kept || std::ranges::any_of(older->payload.keys,
                                                     [&](auto& key) { return keys.contains(key); });
  }
}

// `change` and all that came after it and mean nothing without it.
WriteBehind::Changes WriteBehind::resting_on(const std::shared_ptr<Change>& change) const {
  Changes all;
  std::set<std::string> names;
  for (const auto& each : backlog_) {
    if (each != change && !names.contains(each->rows.rests_on)) continue;
    all.push_back(each);
    if (!each->rows.name.empty()) names.insert(each->rows.name);
  }
  return all;
}

// The oldest go first, and of those one that is partly written only where no other is left: else,
// of puts that come faster than the disk writes, none would ever be written whole.
bool WriteBehind::make_room_for(const Change& change) {
  if (change.payload.size_bytes > bytes_max_) return false;
  const std::uint64_t most = bytes_max_ - change.payload.size_bytes;
  if (bytes_ <= most) return true;
  // The changes that the new one rests on stay.
  std::set<const Change*> needed;
  std::set<std::string> names{change.rows.rests_on};
  for (const auto& each : std::ranges::reverse_view(backlog_)) {
    if (each->rows.name.empty() || !names.contains(each->rows.name)) continue;
    needed.insert(each.get());
    names.insert(each->rows.rests_on);
  }
  std::set<std::shared_ptr<Change>> going;
  std::uint64_t left = bytes_;
  for (const bool partly_written : {false, true}) {
    for (const auto& each : backlog_) {
      if (left <= most) break;
      if (each->payload.keys.empty() || has_written(*each) != partly_written) continue;
      const Changes all = resting_on(each);
      const bool stays = std::ranges::any_of(all, [&](const std::shared_ptr<Change>& one) {
        return one->settling || one->kept || needed.contains(one.get());
      });
      if (stays) continue;
      for (const auto& one : all) {
        if (going.insert(one).second) left -= one->payload.size_bytes;
      }
    }
  }
  if (left > most) return false;
  for (const auto& each : going) drop(each);
  return true;
}

void WriteBehind::drop(const std::shared_ptr<Change>& change) {
  // A session's row has no name, for nobody need be told of it: its tip is named.
  if (!change->rows.name.empty()) dropped_.push_back(change->rows.name);
  change->dropped = true;
  index_.forget(change->payload);
  bytes_ -= change->payload.size_bytes;
  change->payload = {};  // the writer passes over what nobody holds
  std::erase(backlog_, change);
}

std::vector<std::string> WriteBehind::take_dropped() {
  const std::lock_guard lock(mutex_);
  return std::exchange(dropped_, {});
}

}  // namespace precis
