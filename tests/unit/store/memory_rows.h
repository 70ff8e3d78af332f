// Rows in memory, with failures and crashes on demand.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cachesvc/store/row_store.h"

namespace precis::testing {

class MemoryRows final : public RowStore {
 public:
  Status write(const RowBatch& batch, Durability durability) override;
  Status harden() override;
  Result<std::vector<std::byte>> get(Table table, const std::string& key) override;
  Status scan(Table table, const VisitRow& row) override;
  Result<std::unique_ptr<RowSnapshot>> snapshot() override;

  // A copy in the state after a crash: of the process, or of the machine with the first `logged` of
  // the unsynced() writes.
  std::unique_ptr<MemoryRows> after_crash(std::optional<std::size_t> logged) const;
  // The next write changes nothing and returns `status`.
  void fail_next_write(Status status);
  void heal();  // no write fails any more
  // The worst state after a crash of the process: all writes at kMemory since the last harden() are
  // lost, those at kWal or better are kept.
  void crash();
  // The number of writes at kWal since the last sync.
  std::size_t unsynced() const;
  // The state after a crash of the machine: synced writes, and the first `logged` of the unsynced()
  // ones.
  void lose_power(std::size_t logged);

 private:
  using Rows = std::map<std::string, std::vector<std::byte>, std::less<>>;
  using Tables = std::array<Rows, kTableCount>;
  using Row = std::pair<Table, std::string>;
  // A copy of a batch: rows written and rows deleted.
  struct Logged {
    std::vector<std::pair<Row, std::vector<std::byte>>> puts;
    std::vector<Row> deletes;
  };
  static Logged copy_of(const RowBatch& batch);
  static void apply(const Logged& batch, Tables& tables);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Tables tables_;
  Tables durable_;           // state after a crash of the process
  Tables synced_;            // state after a crash of the machine, without log_
  std::vector<Logged> log_;  // writes at kWal since the last sync
  std::optional<Status> fail_next_;
};

}  // namespace precis::testing
