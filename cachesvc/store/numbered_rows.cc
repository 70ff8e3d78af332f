#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/base/clock.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

namespace precis {
namespace {

// The table that comes last in RocksDB's file list: if the end of that list is lost, the number is
// lost before rows of other tables.
constexpr Table kNumberTable = Table::kProfiles;
constexpr std::string_view kNumberKey = "store.change";

using Number = std::array<std::byte, 8>;

Result<std::uint64_t> stored_number(RowStore& rows) {
  const auto row = rows.get(kNumberTable, std::string(kNumberKey));
  if (row.status().code() == StatusCode::kNotFound) return std::uint64_t{0};
  PRECIS_TRY(row.status());
  std::uint64_t number = 0;
  if (row->size() != sizeof number) {
    return Status::corruption("the row with the number of the last change has " +
                              std::to_string(row->size()) + " B, not 8");
  }
  std::memcpy(&number, row->data(), sizeof number);
  return number;
}

// The doubt about the rows' recovery, with the doubts of earlier openings, and whether this opening
// added to it.
struct Judgement {
  std::optional<RecoveryDoubt> doubt;
  bool is_new = false;
};

Judgement judge(const AckRecord::Before& before, std::uint64_t found) {
  const bool record_lost = before.is_damaged || (before.is_new && found > 0);
  const std::uint64_t lost = before.expected > found ? before.expected - found : 0;
  if (lost == 0 && !record_lost) return {before.doubt};
  RecoveryDoubt doubt = before.doubt.value_or(RecoveryDoubt{0, SystemClock().unix_ms(), false});
  doubt.lost_changes += lost;
  doubt.record_lost = doubt.record_lost || record_lost;
  return {doubt, true};
}

class NumberedRows final : public RowStore {
 public:
  // `found`: the last change in the rows; `last`: the last number in use.
  NumberedRows(std::unique_ptr<RowStore> rows, std::unique_ptr<AckRecord> record,
               std::uint64_t found, std::uint64_t last, const std::optional<RecoveryDoubt>& doubt,
               std::optional<KeptLogs> kept_logs)
      : rows_(std::move(rows)),
        record_(std::move(record)),
        last_(last),
        kept_logs_(std::move(kept_logs)),
        kept_log_bytes_(kept_logs_ ? kept_logs_->bytes() : 0),
        doubt_(doubt),
        written_(found) {}

  Status write(const RowBatch& batch, Durability durability) override {
    // A change at kMemory gets no number: after a crash the number could be present without the
    // change.
    if (durability == Durability::kMemory) return rows_->write(batch, durability);
    const std::lock_guard lock(writes_);
    // The number of a failed write is not reused: the write may have succeeded nevertheless.
    const std::uint64_t number = ++last_;
    Number value;
    std::memcpy(value.data(), &number, sizeof number);
    RowBatch numbered = batch;
    numbered.puts.push_back({kNumberTable, std::string(kNumberKey), value});
    PRECIS_TRY(rows_->write(numbered, durability));
    record_->note(number, durability == Durability::kFsync);
    written_ = number;
    return {};
  }

  Status harden() override {
    const std::uint64_t before = written_;
    PRECIS_TRY(rows_->harden());
    record_->note(before, true);
    return {};
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return rows_->get(table, key);
  }
  Status scan(Table table, const VisitRow& row) override {
    if (table != kNumberTable) return rows_->scan(table, row);
    return rows_->scan(table, [&](std::string_view key, Bytes value) {
      return key == kNumberKey ? Status() : row(key, value);
    });
  }
  Result<std::unique_ptr<RowSnapshot>> snapshot() override { return rows_->snapshot(); }
  RowStats stats() override {
    RowStats stats = rows_->stats();
    stats.kept_log_bytes = kept_log_bytes_;
    return stats;
  }
  Status check() override { return rows_->check(); }

  std::optional<RecoveryDoubt> doubt() override {
    const std::lock_guard lock(doubt_mutex_);
    return doubt_;
  }

  Status accept_loss() override {
    const std::lock_guard lock(writes_);
    PRECIS_TRY(record_->save(written_, std::nullopt));
    if (kept_logs_) kept_logs_->remove_all();
    kept_log_bytes_ = 0;
    const std::lock_guard told(doubt_mutex_);
    doubt_.reset();
    return {};
  }

 private:
  const std::unique_ptr<RowStore> rows_;
  const std::unique_ptr<AckRecord> record_;
  std::mutex writes_;  // held during disk writes
  // Guarded by writes_.
  std::uint64_t last_;
  std::optional<KeptLogs> kept_logs_;
  std::atomic<std::uint64_t> kept_log_bytes_;
  // Not writes_, so that doubt() does not wait for a stalled disk.
  std::mutex doubt_mutex_;              // locked after writes_
  std::optional<RecoveryDoubt> doubt_;  // guarded by doubt_mutex_
  std::atomic<std::uint64_t> written_;  // the last change in the rows; written under writes_
};

}  // namespace

Result<std::unique_ptr<RowStore>> number_rows(std::unique_ptr<RowStore> rows,
                                              const std::string& record_path,
                                              const AckRecordOptions& options,
                                              std::optional<KeptLogs> kept_logs) {
  PRECIS_ASSIGN(std::unique_ptr<AckRecord> record, AckRecord::open(record_path, options));
  PRECIS_ASSIGN(const std::uint64_t found, stored_number(*rows));
  auto [doubt, is_new] = judge(record->before(), found);
  // Used numbers are not reused, even if their changes are lost.
  const std::uint64_t last = std::max(found, record->before().last);
  PRECIS_TRY(record->save(found, doubt));
  // Not before the doubt is on the disk: if a start dies earlier, the next start still finds the
  // logs.
  if (kept_logs && !doubt) kept_logs->remove_all();
  if (kept_logs && doubt && !is_new) kept_logs->remove_latest();
  if (kept_logs && doubt) doubt->logs = kept_logs->text();
  return std::unique_ptr<RowStore>(std::make_unique<NumberedRows>(
      std::move(rows), std::move(record), found, last, doubt, std::move(kept_logs)));
}

}  // namespace precis
