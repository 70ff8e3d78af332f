#include "cachesvc/store/memory_store.h"

#include <algorithm>
#include <utility>

namespace precis {

MemoryStore::Logged MemoryStore::copy_of(const StoreBatch& batch) {
  Logged copy;
  for (const StoreBatch::Put& put : batch.puts) {
    copy.puts.emplace_back(Row{put.table, put.key},
                           std::vector<std::byte>(put.value.begin(), put.value.end()));
  }
  for (const StoreBatch::Delete& gone : batch.deletes) {
    copy.deletes.emplace_back(gone.table, gone.key);
  }
  return copy;
}

void MemoryStore::apply(const Logged& batch, Tables& tables) {
  for (const auto& [row, value] : batch.puts) {
    tables[static_cast<std::size_t>(row.first)].insert_or_assign(row.second, value);
  }
  for (const auto& [table, key] : batch.deletes) tables[static_cast<std::size_t>(table)].erase(key);
}

Status MemoryStore::write(const StoreBatch& batch, Durability durability) {
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

Status MemoryStore::harden() {
  std::lock_guard lock(mutex_);
  durable_ = synced_ = tables_;
  log_.clear();
  return {};
}

const std::vector<std::byte>* MemoryStore::find(Table table, const std::string& key) const {
  const Rows& rows = tables_[static_cast<std::size_t>(table)];
  const auto row = rows.find(key);
  return row == rows.end() ? nullptr : &row->second;
}

std::shared_ptr<const KeptPayload> MemoryStore::keep(const std::vector<std::string>& keys, bool) {
  struct Copies final : KeptPayload {
    std::vector<std::vector<std::byte>> values;
    Status read_into(std::size_t value, MutableBytes into) const override {
      if (values.at(value).size() != into.size()) return Status::corruption("memory store: size");
      std::ranges::copy(values[value], into.begin());
      return {};
    }
  };
  auto kept = std::make_shared<Copies>();
  std::lock_guard lock(mutex_);
  for (const std::string& key : keys) {
    const auto* const value = find(Table::kPayload, key);
    if (!value) return nullptr;
    kept->values.push_back(*value);
  }
  return kept;
}

Result<std::vector<std::byte>> MemoryStore::get(Table table, const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto* const value = find(table, key);
  if (!value) return Status::not_found("memory store: no such row");
  return *value;
}

Status MemoryStore::read_into(Table table, const std::string& key, MutableBytes into) {
  std::lock_guard lock(mutex_);
  const auto* const value = find(table, key);
  if (!value) return Status::not_found("memory store: no such row");
  if (value->size() != into.size()) {
    return Status::corruption("memory store: " + std::to_string(value->size()) + " B are stored, " +
                              std::to_string(into.size()) + " B expected");
  }
  std::copy(value->begin(), value->end(), into.begin());
  return {};
}

Status MemoryStore::scan(Table table,
                         const std::function<Status(std::string_view key, Bytes value)>& row) {
  Rows rows;
  {
    std::lock_guard lock(mutex_);
    rows = tables_[static_cast<std::size_t>(table)];
  }  // unlocked, so `row` may call the store
  for (const auto& [key, value] : rows) PRECIS_TRY(row(key, value));
  return {};
}

StoreStats MemoryStore::stats() {
  std::lock_guard lock(mutex_);
  StoreStats stats;
  for (const auto& [key, value] : tables_[static_cast<std::size_t>(Table::kPayload)]) {
    stats.payload_bytes += value.size();
  }
  return stats;
}

void MemoryStore::fail_next_write(Status status) {
  std::lock_guard lock(mutex_);
  fail_next_ = std::move(status);
}

void MemoryStore::crash() {
  std::lock_guard lock(mutex_);
  tables_ = durable_;
}

std::size_t MemoryStore::unsynced() const {
  std::lock_guard lock(mutex_);
  return log_.size();
}

void MemoryStore::lose_power(std::size_t logged) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < std::min(logged, log_.size()); ++i) apply(log_[i], synced_);
  log_.clear();
  tables_ = durable_ = synced_;
}

}  // namespace precis
