#include "cachesvc/store/write_behind.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace precis {
namespace {

// Approximate memory of a row or a value besides its bytes.
constexpr std::uint64_t kOverheadBytes = 256;

std::uint64_t row_bytes_of(const WriteBehind::Change& change) {
  std::uint64_t bytes = kOverheadBytes * (1 + change.payload.keys.size());
  for (const RowBatch::Put& put : change.rows.puts) {
    bytes += kOverheadBytes + put.key.size() + put.value.size();
  }
  return bytes;
}

bool has_written(const WriteBehind::Change& change) {
  return std::ranges::any_of(change.payload.values, [](auto& value) { return value->over(); });
}

}  // namespace

WriteBehind::WriteBehind(PayloadIndex& index, PayloadStore& payload, std::uint64_t bytes_max,
                         std::function<Status(const Change&)> apply, std::function<void()> failed)
    : index_(index),
      payload_(payload),
      bytes_max_(bytes_max),
      apply_(std::move(apply)),
      failed_(std::move(failed)) {}

// ---- deferring

bool WriteBehind::leave(const std::shared_ptr<Change>& change) {
  const PayloadBatch& payload = change->payload;
  const bool over = std::ranges::all_of(payload.values, [](auto& v) { return v->over(); });
  const bool failed = std::ranges::any_of(payload.values, [](auto& v) { return v->has_failed(); });
  std::unique_lock ordered(order_);
  std::lock_guard lock(mutex_);
  if (!change->rows.deletes.empty() || failed || (over && backlog_.empty())) return false;
  change->row_bytes = row_bytes_of(*change);
  if (!backlog_.first_failure().ok() || !make_room_for(*change)) return false;
  keep_what_is_replaced(*change);
  for (RowBatch::Put& put : change->rows.puts) {
    put.value = change->row_values.emplace_back(put.value.begin(), put.value.end());
  }
  index_.expect(payload);
  backlog_.add(change);
  bytes_ += payload.size_bytes;
  settle_later(change);
  return true;
}

// Only the backlog owns the change, so a dropped change is freed at once.
void WriteBehind::settle_later(const std::shared_ptr<Change>& change) {
  const std::weak_ptr<Change> waiting = change;
  const auto settle_it = [this, waiting] {
    if (const auto found = waiting.lock()) settle(found);
  };
  payload_.then(settle_it, waiting);
}

// Runs on the payload store's thread, after the change's values are written or have failed.
void WriteBehind::settle(const std::shared_ptr<Change>& change) {
  Status status;
  {
    std::lock_guard lock(mutex_);
    if (change->dropped) return;
    change->settling = true;
    status = backlog_.first_failure(change.get());
  }
  for (const auto& value : change->payload.values) {
    if (Status written = value->wait(); status.ok()) status = std::move(written);
  }
  if (status.ok()) status = apply_(*change);
  if (!status.ok()) failed_();
  std::lock_guard lock(mutex_);
  change->settling = false;
  backlog_.set_failed(*change, std::move(status));
  if (!change->failed.ok()) return;
  index_.erase(change->payload);
  bytes_ -= change->payload.size_bytes;
  backlog_.remove(change);
}

// ---- catching up

std::shared_lock<std::shared_mutex> WriteBehind::while_none_waits() {
  std::shared_lock held(order_);
  std::lock_guard lock(mutex_);
  if (!backlog_.empty()) held.unlock();
  return held;
}

WriteBehind::CaughtUp WriteBehind::catch_up() {
  std::unique_lock held(order_);
  payload_.settle();  // all remaining changes have failed
  std::vector<std::shared_ptr<Change>> failed;
  {
    std::lock_guard lock(mutex_);
    failed = backlog_.copy();
    for (const auto& change : failed) backlog_.set_failed(*change, {});
  }
  for (const auto& change : failed) {
    for (const auto& value : change->payload.values) {
      if (value->has_failed()) value->retry();
    }
    settle_later(change);
  }
  payload_.settle();
  std::lock_guard lock(mutex_);
  return {std::move(held), backlog_.first_failure()};
}

void WriteBehind::catch_up_with(Table table) {
  const auto waits = [&](const auto& placed) {
    const RowBatch& rows = placed.second->rows;
    return std::ranges::any_of(rows.puts, [&](auto& put) { return put.table == table; });
  };
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::none_of(backlog_.all(), waits)) return;
  }
  (void)catch_up();
}

void WriteBehind::supersede(const Change& newer) {
  std::set<std::pair<Table, std::string>> rows;
  for (const auto& put : newer.rows.puts) rows.emplace(put.table, put.key);
  for (const auto& each : newer.rows.deletes) rows.emplace(each.table, each.key);
  for (const std::string& key : newer.payload.keys) rows.emplace(Table::kPayload, key);
  std::lock_guard lock(mutex_);
  for (const auto& change : backlog_.copy()) {
    std::erase_if(change->rows.puts, [&](auto& p) { return rows.contains({p.table, p.key}); });
    PayloadBatch left, gone;
    for (std::size_t i = 0; i < change->payload.keys.size(); ++i) {
      PayloadBatch& to = rows.contains({Table::kPayload, change->payload.keys[i]}) ? gone : left;
      to.keys.push_back(change->payload.keys[i]);
      to.values.push_back(change->payload.values[i]);
      to.size_bytes += to.values.back()->size_bytes();
    }
    index_.erase(gone);
    bytes_ -= gone.size_bytes;
    change->payload = std::move(left);
    if (change->rows.puts.empty() && change->payload.keys.empty()) backlog_.remove(change);
  }
}

// ---- dropping

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
  std::map<std::uint64_t, std::shared_ptr<Change>> going;  // by place: the oldest is dropped first
  for (const bool partly_written : {false, true}) {
    for (const auto& [place, each] : backlog_.droppable()) {
      if (has_room()) break;
      // A superseded change may have only rows left.
      if (each->payload.keys.empty() || stays(each)) continue;
      if (has_written(*each) != partly_written) continue;
      const auto all = backlog_.resting_on(each);
      if (std::ranges::any_of(all, stays)) continue;
      for (const auto& one : all) {
        if (!going.emplace(one->place, one).second) continue;
        left -= one->payload.size_bytes;
        rows_left -= one->row_bytes;
      }
    }
  }
  if (!has_room()) return false;
  for (const auto& [place, each] : going) drop(each);
  return true;
}

void WriteBehind::drop(const std::shared_ptr<Change>& change) {
  // A session's row has no name: its owner learns from the dropped tip, which has a name.
  if (!change->name.empty()) dropped_.push_back(change->name);
  backlog_.remove(change);
  change->dropped = true;
  index_.erase(change->payload);
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
