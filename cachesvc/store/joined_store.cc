#include "cachesvc/store/joined_store.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "cachesvc/store/compactor.h"
#include "cachesvc/store/extent_row.h"
#include "cachesvc/store/payload_index.h"
#include "cachesvc/store/write_behind.h"

namespace precis {
namespace {

class JoinedStore final : public Store, private PayloadOwner {
 public:
  JoinedStore(std::unique_ptr<RowStore> rows, std::unique_ptr<PayloadStore> payload,
              PayloadIndex::Map places, std::uint64_t write_behind_bytes, Compaction compaction,
              std::shared_ptr<SpaceGuard> guard)
      : guard_(std::move(guard)),
        rows_(std::move(rows)),
        compactor_(std::move(compaction.thread), compaction.clock, compaction.after),
        payload_(std::move(payload)),
        doubtful_(rows_->doubt().has_value()),
        index_(*payload_, std::move(places)),
        behind_(
            index_, *payload_, write_behind_bytes,
            [this](const Change& change) { return apply(change, Durability::kMemory); },
            [this] { compactor_.wake(/*failed=*/true); }) {
    payload_->attach(*this);
    compactor_.start([this](const std::stop_token& stop) { return compact(stop); });
  }

  ~JoinedStore() override {
    (void)behind_.catch_up();  // there may be space by now
    compactor_.stop();
  }

  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return payload_->stage(std::move(value));
  }

  Status write(const StoreBatch& batch, Durability durability) override {
    // Shared with the payload store's thread if the change is deferred.
    auto change = std::make_shared<Change>();
    const bool staged = take_apart(batch, *change);
    if (durability == Durability::kMemory && staged && behind_.leave(change)) return {};
    // A value that failed when it was staged may find space now.
    for (const auto& value : change->payload.values) {
      if (value->has_failed()) value->retry();
    }
    // Waits for all values even if one fails, because they are borrowed.
    Status status;
    for (const auto& value : change->payload.values) {
      if (Status written = value->wait(); status.ok()) status = std::move(written);
    }
    if (!status.ok()) {
      compactor_.wake(/*failed=*/true);  // space may be reclaimable
      return status;
    }
    if (const auto none_waits = behind_.while_none_waits()) return apply(*change, durability);
    const WriteBehind::CaughtUp before = behind_.catch_up();
    if (durability == Durability::kMemory) PRECIS_TRY(before.status);
    status = apply(*change, durability);
    if (status.ok()) behind_.supersede(*change);
    return status;
  }

  Status harden() override {
    PRECIS_TRY(behind_.catch_up().status);
    PRECIS_TRY(payload_->sync());
    return rows_->harden();
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    behind_.catch_up_with(table);
    return rows_->get(table, key);
  }

  Status scan(Table table, const RowStore::VisitRow& row) override {
    behind_.catch_up_with(table);
    return rows_->scan(table, row);
  }

  Result<std::vector<std::byte>> read(const std::string& key) override {
    PRECIS_ASSIGN(const PayloadIndex::Found found, index_.find(key));
    if (found.pin) return found.pin->read();
    return std::vector<std::byte>(found.memory.bytes.begin(), found.memory.bytes.end());
  }

  Status read_into(const std::string& key, MutableBytes into) override {
    PRECIS_ASSIGN(const PayloadIndex::Found found, index_.find(key));
    if (found.pin) return found.pin->read_into(into);
    const Bytes value = found.memory.bytes;
    if (into.size() != value.size()) {
      return Status::corruption("payload: " + std::to_string(value.size()) + " B are stored, " +
                                std::to_string(into.size()) + " B expected");
    }
    std::ranges::copy(value, into.begin());
    return {};
  }

  std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                          bool may_wait) override {
    constexpr auto kKeep = PayloadStore::Pinning::kKeep;
    KeptPayload pins;
    for (const std::string& key : keys) {
      auto found = index_.find(key, kKeep);
      if (found.ok() && !found->pin && may_wait) {
        (void)behind_.catch_up();
        found = index_.find(key, kKeep);
      }
      if (!found.ok() || !found->pin) return nullptr;
      pins.push_back(std::move(found->pin));
    }
    return std::make_shared<KeptPayload>(std::move(pins));
  }

  std::uint64_t held_bytes(const std::string& prefix) override { return index_.bytes_of(prefix); }
  std::uint64_t payload_bytes() override { return payload_->stats().live_bytes; }

  Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
    const WriteBehind::CaughtUp none_waits = behind_.catch_up();
    PRECIS_TRY(none_waits.status);
    const std::lock_guard writing(writes_);
    PRECIS_ASSIGN(std::unique_ptr<RowSnapshot> rows, rows_->snapshot());
    std::unique_ptr<PayloadHold> held = payload_->hold();
    if (!held) return Status::conflict("the store's payload is held already");
    return std::make_unique<StoreSnapshot>(std::move(rows), std::move(held), *payload_);
  }

  std::vector<std::string> take_dropped() override { return behind_.take_dropped(); }

  std::optional<RecoveryDoubt> doubt() override { return rows_->doubt(); }

  Status accept_loss() override {
    PRECIS_TRY(rows_->accept_loss());
    doubtful_ = false;
    compactor_.wake(/*failed=*/false);
    return {};
  }

  StoreStats stats() override {
    const RowStats rows = rows_->stats();
    const PayloadStats payload = payload_->stats();
    return {
        .disk_bytes = rows.disk_bytes + payload.disk_bytes,
        .payload_bytes = payload.live_bytes,
        .missing_bytes = payload.missing_bytes,
        .unclaimed_bytes = payload.disk_bytes - std::min(payload.disk_bytes, payload.live_bytes),
        .tidy_passes = compactor_.passes(),
        .kept_log_bytes = rows.kept_log_bytes};
  }

  StoreHealth health() override {
    StoreHealth health;
    health.files = rows_->check();
    if (const Status payload = payload_->check(); health.files.ok()) health.files = payload;
    if (!guard_) return health;
    if (const auto room = guard_->room(); room.ok()) static_cast<SpaceGuard::Room&>(health) = *room;
    health.min_free_bytes = guard_->budget().min_free_bytes;
    return health;
  }

 private:
  using Change = WriteBehind::Change;

  // ---- PayloadOwner

  void freed() override { compactor_.wake(/*failed=*/false); }
  Status harden_rows() override { return rows_->harden(); }
  Named named_in(std::uint32_t file) override { return index_.named_in(file); }
  Status move(const std::string& name, const Extent& from, const Extent& to) override {
    const std::lock_guard writing(writes_);
    if (!index_.is_at(name, from)) return Status::not_found(name);
    const ExtentRow row = encode_extent(to);
    PRECIS_TRY(rows_->write({{{Table::kPayload, name, row}}, {}, true}, Durability::kWal));
    index_.move(name, to);
    return {};
  }

  // ---- commits

  // Splits a batch into rows and payload. Returns true if all payload was staged. Other values are
  // staged now, in borrowed memory.
  bool take_apart(const StoreBatch& batch, Change& change) {
    bool staged = true;
    change.rows.makes_room = batch.makes_room;
    for (const StoreBatch::Put& put : batch.puts) {
      if (put.table != Table::kPayload) {
        change.rows.puts.push_back({put.table, put.key, put.value});
        continue;
      }
      staged = staged && put.staged;
      change.payload.keys.push_back(put.key);
      change.payload.values.push_back(
          put.staged ? put.staged : payload_->stage({put.value, nullptr}, batch.makes_room));
      change.payload.size_bytes += put.value.size();
    }
    change.rows.deletes = batch.deletes;
    change.name = batch.name;
    change.rests_on = batch.rests_on;
    return staged;
  }

  // Requires that all values are written.
  Status apply(const Change& change, Durability durability) {
    RowBatch rows = change.rows;
    std::deque<ExtentRow> places;
    for (std::size_t i = 0; i < change.payload.keys.size(); ++i) {
      places.push_back(encode_extent(change.payload.values[i]->place()));
      rows.puts.push_back({Table::kPayload, change.payload.keys[i], places.back()});
    }
    std::vector<std::string> deleted;
    for (const RowBatch::Delete& each : rows.deletes) {
      if (each.table == Table::kPayload) deleted.push_back(each.key);
    }
    Status status = durability == Durability::kFsync ? payload_->sync() : Status();
    std::vector<Extent> gone;
    if (status.ok()) {
      const std::lock_guard writing(writes_);
      status = rows_->write(rows, durability);
      if (status.ok()) gone = index_.replace(change.payload, deleted);
    }
    payload_->free(gone);
    if (!gone.empty() || !status.ok()) compactor_.wake(!status.ok() || is_tight());
    if (status.ok() && !change.payload.keys.empty()) compactor_.space_available();
    const bool is_put = !change.payload.keys.empty() && !rows.makes_room;
    if (status.ok() && is_put && guard_) guard_->note_stored();
    return status;
  }

  // ---- space

  bool is_tight() const { return guard_ && guard_->tight(); }

  // Returns false if nothing is left to do.
  bool compact(const std::stop_token& stop) {
    if (guard_) (void)guard_->room();  // updates is_tight()
    // After a doubtful recovery, lost rows may own values without a row.
    const bool more = !doubtful_ && payload_->reclaim(is_tight(), stop);
    if (guard_) guard_->restore_reserve();
    return more;
  }

  // Destroyed from last to first. Values and pins call freed(), so compactor_ outlives the last of
  // them.
  const std::shared_ptr<SpaceGuard> guard_;  // may be null
  const std::unique_ptr<RowStore> rows_;
  Compactor compactor_;
  const std::unique_ptr<PayloadStore> payload_;
  std::atomic<bool> doubtful_;  // rows_->doubt().has_value(), for the compactor
  std::mutex writes_;           // one batch of rows at a time, with its update of the index
  PayloadIndex index_;
  WriteBehind behind_;
};

}  // namespace

Result<std::unique_ptr<Store>> join_store(std::unique_ptr<RowStore> rows, const OpenPayload& open,
                                          std::uint64_t write_behind_bytes, Compaction compaction,
                                          std::shared_ptr<SpaceGuard> guard) {
  PayloadIndex::Map places;
  std::vector<Extent> live;
  PRECIS_TRY(rows->scan(Table::kPayload, [&](std::string_view key, Bytes value) -> Status {
    // An unreadable row counts as a missing value; a read of the value reports it.
    if (const std::optional<Extent> place = decode_extent(value)) {
      places.emplace(key, *place);
      live.push_back(*place);
    }
    return {};
  }));
  PRECIS_ASSIGN(std::unique_ptr<PayloadStore> payload, open(live));
  // Bytes that an earlier process left in the page cache are durable from here on.
  PRECIS_TRY(payload->sync());
  PRECIS_TRY(rows->harden());
  return std::unique_ptr<Store>(
      std::make_unique<JoinedStore>(std::move(rows), std::move(payload), std::move(places),
                                    write_behind_bytes, std::move(compaction), std::move(guard)));
}

}  // namespace precis
