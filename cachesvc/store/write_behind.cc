#include "cachesvc/store/write_behind.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace precis {

WriteBehind::WriteBehind(ExtentIndex& index, PayloadWriter& writer, std::uint64_t bytes_max,
                         std::function<Status(const Change&)> apply, std::function<void()> failed)
    : index_(index),
      writer_(writer),
      bytes_max_(bytes_max),
      apply_(std::move(apply)),
      failed_(std::move(failed)) {}

// ---- leaving

bool WriteBehind::leave(const std::shared_ptr<Change>& change) {
  const PayloadBatch& payload = change->payload;
  const bool over = std::ranges::all_of(payload.values, [](auto& v) { return v->over(); });
  const bool failed = std::ranges::any_of(payload.values, [](auto& v) { return v->has_failed(); });
  std::unique_lock ordered(order_);
  std::lock_guard lock(mutex_);
  if (!change->rows.deletes.empty() || failed || (over && backlog_.empty())) return false;
  if (!first_failure().ok() || !make_room_for(*change)) return false;
  keep_what_is_replaced(*change);
  for (StoreBatch::Put& put : change->rows.puts) {
    put.value = change->row_values.emplace_back(put.value.begin(), put.value.end());
  }
  index_.expect(payload);
  backlog_.push_back(change);
  bytes_ += payload.size_bytes;
  writer_.then([this, change] { settle(change); });
  return true;
}

// On the writer's thread, when its values have been written or have failed.
void WriteBehind::settle(const std::shared_ptr<Change>& change) {
  Status status;
  {
    std::lock_guard lock(mutex_);
    if (change->dropped) return;
    change->settling = true;
    status = first_failure(change);
  }
  for (const auto& value : change->payload.values) {
    if (Status written = value->wait(); status.ok()) status = std::move(written);
  }
  if (status.ok()) status = apply_(*change);
  if (!status.ok()) failed_();
  std::lock_guard lock(mutex_);
  change->settling = false;
  change->failed = std::move(status);
  if (!change->failed.ok()) return;
  index_.forget(change->payload);
  bytes_ -= change->payload.size_bytes;
  std::erase(backlog_, change);
}

// ---- catching up

std::shared_lock<std::shared_mutex> WriteBehind::while_none_waits() {
  std::shared_lock held(order_);
  if (!backlog().empty()) held.unlock();
  return held;
}

WriteBehind::CaughtUp WriteBehind::catch_up() {
  std::unique_lock held(order_);
  writer_.wait_for_all();  // what is left now has failed
  for (const auto& change : backlog()) {
    {
      std::lock_guard lock(mutex_);
      change->failed = {};
    }
    for (const auto& value : change->payload.values) {
      if (value->has_failed()) writer_.add_again(value);
    }
    writer_.then([this, change] { settle(change); });
  }
  writer_.wait_for_all();
  std::lock_guard lock(mutex_);
  return {std::move(held), first_failure()};
}

void WriteBehind::catch_up_with(Table table) {
  const auto waits = [&](const std::shared_ptr<Change>& change) {
    return std::ranges::any_of(change->rows.puts, [&](auto& put) { return put.table == table; });
  };
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::none_of(backlog_, waits)) return;
  }
  (void)catch_up();
}

void WriteBehind::supersede(const Change& newer) {
  std::set<std::pair<Table, std::string>> rows;
  for (const auto& put : newer.rows.puts) rows.emplace(put.table, put.key);
  for (const auto& each : newer.rows.deletes) rows.emplace(each.table, each.key);
  for (const std::string& key : newer.payload.keys) rows.emplace(Table::kPayload, key);
  std::lock_guard lock(mutex_);
  for (const auto& change : backlog_) {
    std::erase_if(change->rows.puts, [&](auto& p) { return rows.contains({p.table, p.key}); });
    PayloadBatch left, gone;
    for (std::size_t i = 0; i < change->payload.keys.size(); ++i) {
      PayloadBatch& to = rows.contains({Table::kPayload, change->payload.keys[i]}) ? gone : left;
      to.keys.push_back(change->payload.keys[i]);
      to.values.push_back(change->payload.values[i]);
      to.size_bytes += to.values.back()->size_bytes();
    }
    index_.forget(gone);
    bytes_ -= gone.size_bytes;
    change->payload = std::move(left);
  }
  std::erase_if(backlog_, [](const std::shared_ptr<Change>& change) {
    return change->rows.puts.empty() && change->payload.keys.empty();
  });
}

Status WriteBehind::first_failure(const std::shared_ptr<Change>& end) const {
  for (const auto& change : backlog_) {
    if (change == end) break;
    if (!change->failed.ok()) return change->failed;
  }
  return {};
}

std::vector<std::shared_ptr<WriteBehind::Change>> WriteBehind::backlog() const {
  std::lock_guard lock(mutex_);
  return backlog_;
}

}  // namespace precis
