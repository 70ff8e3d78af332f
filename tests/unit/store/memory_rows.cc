#include "tests/unit/store/memory_rows.h"

#include <algorithm>
#include <utility>

namespace precis::testing {

MemoryRows::Logged MemoryRows::copy_of(const RowBatch& batch) {
  Logged copy;
  for (const RowBatch::Put& put : batch.puts) {
    copy.puts.emplace_back(Row{put.table, put.key},
                           std::vector<std::byte>(put.value.begin(), put.value.end()));
  }
  for (const RowBatch::Delete& gone : batch.deletes) {
    copy.deletes.emplace_back(gone.table, gone.key);
  }
  return copy;
}

void MemoryRows::apply(const Logged& batch, Tables& tables) {
  for (const auto& [row, value] : batch.puts) {
    tables[static_cast<std::size_t>(row.first)].insert_or_assign(row.second, value);
  }
  for (const auto& [table, key] : batch.deletes) tables[static_cast<std::size_t>(table)].erase(key);
}

Status MemoryRows::write(const RowBatch& batch, Durability durability) {
  std::lock_guard lock(mutex_);
  if (fail_next_) return *std::exchange(fail_next_, std::nullopt);
  Logged copy = copy_of(batch);
  apply(copy, tables_);
  if (durability == Durability::kMemory) return {};
  apply(copy, durable_);
  log_.push_back(std::move(copy));
  if (durability == Durability::kWal) return {};
  for (const Logged& logged : log_) apply(logged, synced_);
  log_.clear();
  return {};
}

Status MemoryRows::harden() {
  std::lock_guard lock(mutex_);
  durable_ = synced_ = tables_;
  log_.clear();
  return {};
}

Result<std::vector<std::byte>> MemoryRows::get(Table table, const std::string& key) {
  std::lock_guard lock(mutex_);
  const Rows& rows = tables_[static_cast<std::size_t>(table)];
  const auto row = rows.find(key);
  if (row == rows.end()) return Status::not_found("memory rows: no such row");
  return row->second;
}

Result<std::unique_ptr<RowSnapshot>> MemoryRows::snapshot() {
  struct Snapshot final : RowSnapshot {
    Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
      return rows.get(table, key);
    }
    Status scan(Table table, const VisitRow& row) override { return rows.scan(table, row); }
    MemoryRows rows;
  };
  auto copy = std::make_unique<Snapshot>();
  std::lock_guard lock(mutex_);
  copy->rows.tables_ = tables_;
  return std::unique_ptr<RowSnapshot>(std::move(copy));
}

Status MemoryRows::scan(Table table, const VisitRow& row) {
  Rows rows;
  {
    std::lock_guard lock(mutex_);
    rows = tables_[static_cast<std::size_t>(table)];
  }  // unlocked, so `row` may call the store
  for (const auto& [key, value] : rows) PRECIS_TRY(row(key, value));
  return {};
}

void MemoryRows::heal() {
  const std::lock_guard lock(mutex_);
  fail_next_.reset();
}

void MemoryRows::fail_next_write(Status status) {
  std::lock_guard lock(mutex_);
  fail_next_ = std::move(status);
}

void MemoryRows::crash() {
  std::lock_guard lock(mutex_);
  tables_ = durable_;
}

std::size_t MemoryRows::unsynced() const {
  std::lock_guard lock(mutex_);
  return log_.size();
}

void MemoryRows::lose_power(std::size_t logged) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < std::min(logged, log_.size()); ++i) apply(log_[i], synced_);
  log_.clear();
  tables_ = durable_ = synced_;
}

std::unique_ptr<MemoryRows> MemoryRows::after_crash(std::optional<std::size_t> logged) const {
  auto copy = std::make_unique<MemoryRows>();
  {
    const std::lock_guard lock(mutex_);
    copy->durable_ = durable_;
    copy->synced_ = synced_;
    copy->log_ = log_;
  }
  if (logged) {
    copy->lose_power(*logged);
  } else {
    copy->crash();
  }
  return copy;
}

}  // namespace precis::testing
