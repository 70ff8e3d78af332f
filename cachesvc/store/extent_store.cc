// Order of a write: values, then (at kFsync) their sync, then one batch of rows. A deferred write
// at kMemory has the same order, but runs later on the writer's thread; until then it is read from
// memory and later writes wait for it. Order of a removal: the batch, then the space. A file is
// removed only when no crash can bring back a row that refers to it.
#include "cachesvc/store/extent_store.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/extent_index.h"
#include "cachesvc/store/extent_row.h"
#include "cachesvc/store/kept_extents.h"
#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/store/payload_writer.h"
#include "cachesvc/store/rocksdb_store.h"
#include "cachesvc/store/write_behind.h"

namespace precis {
namespace {

class ExtentStore final : public Store {
 public:
  ExtentStore(std::unique_ptr<Store> rows, ExtentIndex::Map extents,
              std::shared_ptr<SpaceGuard> guard, std::unique_ptr<ExtentFiles> files,
              const ExtentStoreOptions& options)
      : options_(options),
        guard_(std::move(guard)),
        rows_(std::move(rows)),
        files_(std::move(files)),
        doubtful_(rows_->doubt().has_value()),
        index_(*files_, std::move(extents)),
        behind_(
            index_, writer_, options.write_behind_bytes,
            [this](const Change& change) { return apply(change, Durability::kMemory); },
            [this] { wake_tidier(/*failed=*/true); }),
        writer_(*files_, [this] { wake_tidier(/*failed=*/false); }),
        tidier_([this](const std::stop_token& stop) { tidy_until(stop); }) {}

  ~ExtentStore() override { (void)behind_.catch_up(); }  // there may be space by now

  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return writer_.add(std::move(value));
  }

  Status write(const StoreBatch& batch, Durability durability) override {
    // Shared with the writer's thread if it is deferred.
    auto change = std::make_shared<Change>();
    const bool staged = take_apart(batch, *change);
    if (durability == Durability::kMemory && staged && behind_.leave(change)) return {};
    // A value that failed when it was staged may find space now.
    for (const auto& value : change->payload.values) {
      if (value->has_failed()) writer_.add_again(value);
    }
    // Waits for all values even if one fails, because they are borrowed.
    Status status;
    for (const auto& value : change->payload.values) {
      if (Status written = value->wait(); status.ok()) status = std::move(written);
    }
    if (!status.ok()) {
      wake_tidier(/*failed=*/true);  // space may be reclaimable
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
    return harden_applied();
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    if (table != Table::kPayload) {
      behind_.catch_up_with(table);
      return rows_->get(table, key);
    }
    PRECIS_ASSIGN(const ExtentIndex::Found found, index_.find(key));
    FileBlocks read;
    if (found.pin) {
      PRECIS_ASSIGN(read, found.pin->read());
    }
    const Bytes value = found.pin ? read.bytes() : found.memory.bytes;
    return std::vector<std::byte>(value.begin(), value.end());
  }

  Status read_into(Table table, const std::string& key, MutableBytes into) override {
    if (table != Table::kPayload) {
      behind_.catch_up_with(table);
      return rows_->read_into(table, key, into);
    }
    PRECIS_ASSIGN(const ExtentIndex::Found found, index_.find(key));
    if (into.size() != found.size) {
      return Status::corruption("payload: " + std::to_string(found.size) + " B are stored, " +
                                std::to_string(into.size()) + " B expected");
    }
    if (found.pin) return found.pin->read(into);
    std::copy(found.memory.bytes.begin(), found.memory.bytes.end(), into.begin());
    return {};
  }

  std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                          bool may_wait) override {
    std::vector<ExtentFiles::Pin> pins;
    for (const std::string& key : keys) {
      auto found = index_.find_to_keep(key);
      if (found.ok() && !found->pin && may_wait) {
        (void)behind_.catch_up();
        found = index_.find_to_keep(key);
      }
      if (!found.ok() || !found->pin) return nullptr;
      pins.push_back(std::move(*found->pin));
    }
    return std::make_shared<KeptExtents>(std::move(pins),
                                         [this] { wake_tidier(/*failed=*/false); });
  }

  Status scan(Table table,
              const std::function<Status(std::string_view key, Bytes value)>& row) override {
    if (table != Table::kPayload) {
      behind_.catch_up_with(table);
      return rows_->scan(table, row);
    }
    for (const std::string& key : index_.keys()) {
      const auto value = get(table, key);
      if (value.status().code() == StatusCode::kNotFound) continue;  // removed meanwhile
      PRECIS_TRY(value.status());
      PRECIS_TRY(row(key, *value));
    }
    return {};
  }

  std::vector<std::string> take_dropped() override { return behind_.take_dropped(); }

  std::optional<RecoveryDoubt> doubt() override { return rows_->doubt(); }

  Status accept_loss() override {
    PRECIS_TRY(rows_->accept_loss());
    doubtful_ = false;
    wake_tidier(/*failed=*/false);
    return {};
  }

  StoreStats stats() override {
    StoreStats stats = rows_->stats();
    const ExtentFiles::Stats files = files_->stats();
    stats.disk_bytes += files.file_bytes;
    stats.payload_bytes = files.live_bytes;
    stats.missing_bytes = files.missing_bytes;
    stats.tidy_passes = tidy_passes_;
    stats.unclaimed_bytes = files.file_bytes - std::min(files.file_bytes, files.live_bytes);
    return stats;
  }

  StoreHealth health() override {
    StoreHealth health = rows_->health();
    if (const Status files = files_->check(); health.files.ok()) health.files = files;
    if (!guard_) return health;
    if (const auto room = guard_->room(); room.ok()) {
      health.free_bytes = room->free_bytes;
      health.total_bytes = room->total_bytes;
      health.low = room->low;
      health.reserve_bytes = room->reserve_bytes;
    }
    health.min_free_bytes = guard_->budget().min_free_bytes;
    return health;
  }

 private:
  using Value = PayloadWriter::Value;
  using Change = WriteBehind::Change;

  // True if all payload was staged. Other values are added to the writer now, in borrowed memory.
  bool take_apart(const StoreBatch& batch, Change& change) {
    bool staged = true;
    const WriteUse use = batch.makes_room ? WriteUse::kMakeRoom : WriteUse::kPayload;
    change.rows.makes_room = batch.makes_room;
    for (const StoreBatch::Put& put : batch.puts) {
      if (put.table != Table::kPayload) {
        change.rows.puts.push_back(put);
        continue;
      }
      staged = staged && put.staged;
      change.payload.keys.push_back(put.key);
      change.payload.values.push_back(put.staged ? std::static_pointer_cast<Value>(put.staged)
                                                 : writer_.add({put.value, nullptr}, use));
      change.payload.size_bytes += put.value.size();
    }
    change.rows.deletes = batch.deletes;
    change.rows.name = batch.name;
    change.rows.rests_on = batch.rests_on;
    return staged;
  }

  // Requires that all values are written.
  Status apply(const Change& change, Durability durability) {
    StoreBatch rows = change.rows;
    std::deque<ExtentRow> encoded;
    for (std::size_t i = 0; i < change.payload.keys.size(); ++i) {
      encoded.push_back(encode_extent(change.payload.values[i]->extent()));
      rows.puts.push_back({Table::kPayload, change.payload.keys[i], encoded.back()});
    }
    std::vector<std::string> deleted;
    for (const StoreBatch::Delete& each : rows.deletes) {
      if (each.table == Table::kPayload) deleted.push_back(each.key);
    }
    Status status = durability == Durability::kFsync ? files_->sync() : Status();
    std::vector<Extent> gone;
    if (status.ok()) {
      std::lock_guard writing(writes_);
      status = rows_->write(rows, durability);
      if (status.ok()) gone = index_.replace(change.payload, deleted);
    }
    for (const Extent& extent : gone) files_->free(extent);
    if (!gone.empty() || !status.ok()) wake_tidier(!status.ok() || is_tight());
    if (status.ok() && !change.payload.keys.empty()) there_is_room();
    const bool is_put = !change.payload.keys.empty() && !rows.makes_room;
    if (status.ok() && is_put && guard_) guard_->note_stored();
    return status;
  }

  Status harden_applied() {
    PRECIS_TRY(files_->sync());
    return rows_->harden();
  }

  // ---- reclaiming space

  // `failed`: a write failed, perhaps for lack of space. Until payload is written again, freed
  // space is then reclaimed without delay.
  void wake_tidier(bool failed) {
    {
      std::lock_guard lock(tidy_mutex_);
      if (untidy_ && (failing_ || !failed)) return;  // already awake
      untidy_ = true;
      failing_ = failing_ || failed;
    }
    tidy_wanted_.notify_one();
  }

  void there_is_room() {
    std::lock_guard lock(tidy_mutex_);
    failing_ = false;
  }

  void tidy_until(const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "tidier");
    std::unique_lock lock(tidy_mutex_);
    while (tidy_wanted_.wait(lock, stop, [this] { return untidy_; })) {
      tidy_wanted_.wait_for(lock, stop, options_.tidy_after, [this] { return failing_; });
      untidy_ = false;
      lock.unlock();
      // Failures, for example on a full disk, are retried when more space is freed.
      while (!stop.stop_requested() && tidy(stop)) {
      }
      ++tidy_passes_;
      lock.lock();
    }
  }

  using KeyedExtents = std::vector<std::pair<std::string, Extent>>;

  bool is_tight() const { return guard_ && guard_->tight(); }

  // False if nothing is left to do.
  bool tidy(const std::stop_token& stop) {
    if (guard_) (void)guard_->room();  // updates tight()
    const bool more = !doubtful_ && give_back(stop);
    if (guard_) guard_->restore_reserve();
    return more;
  }

  // Reclaims the space of dead bytes. Must not run after a doubtful recovery: lost rows may own
  // bytes without a row. False if nothing is left to do.
  bool give_back(const std::stop_token& stop) {
    const bool tight = is_tight();
    const bool more = tight && punches_ && punch();
    if (tight && punches_) return more;
    // Without holes, values are moved. If space is short, they are moved from nearly full files
    // too.
    return empty_sparsest(tight ? kTightLiveShare : options_.live_share, stop);
  }

  // Punches holes into dead ranges, which needs no free space. True if the file system cannot, so
  // that values must be moved.
  bool punch() {
    const std::vector<std::uint32_t> empty = files_->empty_files();
    const std::vector<ExtentFiles::Hole> holes = files_->holes();
    if (empty.empty() && holes.empty()) return false;
    // As before removing a file: no crash may bring back a row that refers to these bytes.
    (void)files_->sync();
    if (!rows_->harden().ok()) return false;
    (void)files_->remove(empty);
    punches_ = files_->punch(holes).code() != StatusCode::kUnsupported;
    return !punches_;
  }

  // Empties the sparsest file, then removes all empty files.
  bool empty_sparsest(double live_share, const std::stop_token& stop) {
    const auto number = files_->sparsest(live_share);
    // A failed move may leave an empty file, too, which is no progress. Files that were empty
    // before are progress: their space may let the move succeed.
    const bool makes_room = !files_->empty_files().empty();
    const bool moved = !number || move_values(*number, stop).ok();
    const std::vector<std::uint32_t> empty = files_->empty_files();
    if (empty.empty()) return false;
    // First make the removal of rows that refer to these files durable: a crash must not bring one
    // back. Rows of other values become durable too, so sync those; files_ remembers a failure.
    (void)files_->sync();
    return rows_->harden().ok() && files_->remove(empty).ok() && (moved || makes_room);
  }

  Status move_values(std::uint32_t number, const std::stop_token& stop) {
    KeyedExtents values = index_.in_file(number);
    if (values.empty()) return {};
    // Rows may be in memory only so far. A move would log such a row without the rest of its batch.
    PRECIS_TRY(harden_applied());
    for (auto next = values.begin(); next != values.end();) {
      if (stop.stop_requested()) return Status::canceled("the store is closing");
      PRECIS_TRY(move_some(next, values.end()));
    }
    return {};
  }

  // Moves some values from `next` on and advances `next`. The values are durable already, so the
  // copies are synced before a row refers to the new place.
  Status move_some(KeyedExtents::iterator& next, KeyedExtents::iterator end) {
    constexpr std::uint64_t kMovedBytes = 16u << 20;
    std::vector<FileBlocks> bytes;
    KeyedExtents moved;
    for (std::uint64_t sum = 0; next != end && sum < kMovedBytes; ++next) {
      auto value = files_->pin(next->second).read();
      if (value.status().code() == StatusCode::kCorruption) {  // left for its reader to report
        files_->set_aside(next->second.file);
        continue;
      }
      PRECIS_TRY(value.status());
      sum += whole_blocks(next->second.size);
      moved.push_back(*next);
      bytes.push_back(std::move(*value));
    }
    std::vector<Bytes> values;
    for (const FileBlocks& value : bytes) values.push_back(value.bytes());
    PRECIS_ASSIGN(const std::vector<Extent> places, files_->append(values, WriteUse::kMakeRoom));
    Status status = files_->sync();
    for (std::size_t i = 0; i < places.size(); ++i) {
      Status written = status;
      if (written.ok()) {
        std::lock_guard writing(writes_);
        written = write_moved(moved[i].first, moved[i].second, places[i]);
      }
      files_->free(written.ok() ? moved[i].second : places[i]);
      if (!written.ok() && written.code() != StatusCode::kNotFound) status = written;
    }
    return status;
  }

  // kNotFound if the value was removed or written again meanwhile.
  Status write_moved(const std::string& key, const Extent& from, const Extent& to) {
    if (!index_.is_at(key, from)) return Status::not_found(key);
    const ExtentRow row = encode_extent(to);
    PRECIS_TRY(rows_->write({{{Table::kPayload, key, row}}, {}, true}, Durability::kWal));
    index_.move(key, to);
    return {};
  }

  // live_share if space is short and the file system punches no holes.
  static constexpr double kTightLiveShare = 0.95;

  const ExtentStoreOptions options_;
  const std::shared_ptr<SpaceGuard> guard_;  // may be null; before its users
  const std::unique_ptr<Store> rows_;
  const std::unique_ptr<ExtentFiles> files_;
  std::atomic<bool> doubtful_;  // rows_->doubt().has_value(), for the tidier
  std::atomic<std::uint64_t> tidy_passes_ = 0;
  std::mutex writes_;  // one batch of rows at a time, with its update of the index
  // Declared before the index: the destruction of its values frees extents and wakes the tidier.
  std::mutex tidy_mutex_;
  std::condition_variable_any tidy_wanted_;
  // Guarded by tidy_mutex_. True at first: files may be sparse and the disk full.
  bool untidy_ = true, failing_ = true;
  bool punches_ = true;  // used by the tidier only: false once the file system refused to punch
  ExtentIndex index_;
  WriteBehind behind_;
  PayloadWriter writer_;
  std::jthread tidier_;  // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<Store>> open_extent_store(std::unique_ptr<Store> rows,
                                                 std::unique_ptr<Folder> folder,
                                                 const ExtentStoreOptions& options,
                                                 std::shared_ptr<SpaceGuard> guard) {
  ExtentIndex::Map extents;
  std::vector<Extent> live;
  PRECIS_TRY(rows->scan(Table::kPayload, [&](std::string_view key, Bytes value) -> Status {
    // An unreadable row is a missing value; its reader is told.
    if (const std::optional<Extent> extent = decode_extent(value)) {
      extents.emplace(key, *extent);
      live.push_back(*extent);
    }
    return {};
  }));
  PRECIS_ASSIGN(std::unique_ptr<ExtentFiles> files,
                ExtentFiles::open(std::move(folder), live, options.file_bytes, guard.get()));
  // Bytes that an earlier process left in the page cache are durable from here on.
  PRECIS_TRY(files->sync());
  PRECIS_TRY(rows->harden());
  return std::unique_ptr<Store>(std::make_unique<ExtentStore>(
      std::move(rows), std::move(extents), std::move(guard), std::move(files), options));
}

Result<std::unique_ptr<Store>> open_disk_store(const std::string& dir,
                                               const ExtentStoreOptions& options) {
  PRECIS_ASSIGN(std::unique_ptr<Folder> top, open_posix_folder(dir));
  PRECIS_ASSIGN(std::unique_ptr<SpaceGuard> opened,
                SpaceGuard::open(std::move(top), dir, options.min_free_bytes));
  const std::shared_ptr<SpaceGuard> guard = std::move(opened);
  KeptLogs kept_logs(dir);
  PRECIS_ASSIGN(std::unique_ptr<Store> rows,
                open_rocksdb_store(dir, {.guard = guard, .kept_logs = &kept_logs}));
  PRECIS_ASSIGN(rows, number_rows(std::move(rows), dir + "/acknowledged", {}, kept_logs));
  PRECIS_ASSIGN(std::unique_ptr<Folder> folder, open_posix_folder(dir + "/payload"));
  ExtentStoreOptions fitting = options;
  fitting.file_bytes = std::min(options.file_bytes, guard->budget().file_bytes);
  return open_extent_store(std::move(rows), std::move(folder), fitting, guard);
}

}  // namespace precis
