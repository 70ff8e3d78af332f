// Order of a write: values, then (at kFsync) their sync, then one batch of rows. A write at kMemory
// goes the same way later, behind its values on the writer's thread, and is read from memory until
// then; whatever is written meanwhile waits for it. Order of a removal: the batch, then the space,
// and a file goes only when no crash can bring back a row that means it.
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

  ~ExtentStore() override { (void)behind_.catch_up(); }  // there may be room by now

  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    return writer_.add(std::move(value));
  }

  Status write(const StoreBatch& batch, Durability durability) override {
    // Shared with the writer's thread where it is left to it.
    auto change = std::make_shared<Change>();
    const bool staged = take_apart(batch, *change);
    if (durability == Durability::kMemory && staged && behind_.leave(change)) return {};
    // What failed when it was staged may find room now.
    for (const auto& value : change->payload.values) {
      if (value->has_failed()) writer_.add_again(value);
    }
    // All of them, also where one fails: they are borrowed.
    Status status;
    for (const auto& value : change->payload.values) {
      if (Status written = value->wait(); status.ok()) status = std::move(written);
    }
    if (!status.ok()) {
      wake_tidier(/*failed=*/true);  // there may be space to be had
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

  // Whether all payload was staged; what was not is on its way now, from memory that is borrowed.
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

  // Once all values are written.
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

  // ---- space that counts no more

  // `failed`: something could not be written, for want of space perhaps. From then on nothing that
  // is freed waits, until payload is written again.
  void wake_tidier(bool failed) {
    {
      std::lock_guard lock(tidy_mutex_);
      if (untidy_ && (failing_ || !failed)) return;  // it is awake
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
      // What fails, on a full disk say, is tried again when more space is freed.
      while (!stop.stop_requested() && tidy(stop)) {
      }
      ++tidy_passes_;
      lock.lock();
    }
  }

  using KeyedExtents = std::vector<std::pair<std::string, Extent>>;

  bool is_tight() const { return guard_ && guard_->tight(); }

  // False once nothing is left to do.
  bool tidy(const std::stop_token& stop) {
    if (guard_) (void)guard_->room();  // as of now
    const bool more = !doubtful_ && give_back(stop);
    if (guard_) guard_->restore_reserve();
    return more;
  }

  // Gives back room that dead bytes take. Not after a doubtful recovery: what no row means may be
  // of rows that are lost. False once nothing is left to do.
  bool give_back(const std::stop_token& stop) {
    const bool tight = is_tight();
    const bool more = tight && punches_ && punch();
    if (tight && punches_) return more;
    // Without holes values are moved; where room is short also out of files that are nearly full.
    return empty_sparsest(tight ? kTightLiveShare : options_.live_share, stop);
  }

  // Gives back the room of dead bytes where they lie, which needs no room itself. True if the file
  // system cannot, so that values must be moved.
  bool punch() {
    const std::vector<std::uint32_t> empty = files_->empty_files();
    const std::vector<ExtentFiles::Hole> holes = files_->holes();
    if (empty.empty() && holes.empty()) return false;
    // As before a file is removed: no crash may bring back a row that refers to these bytes.
    (void)files_->sync();
    if (!rows_->harden().ok()) return false;
    (void)files_->remove(empty);
    punches_ = files_->punch(holes).code() != StatusCode::kUnsupported;
    return !punches_;
  }

  // Empties the sparsest file, then removes what is empty.
  bool empty_sparsest(double live_share, const std::stop_token& stop) {
    const auto number = files_->sparsest(live_share);
    // A move that fails leaves an empty file, too, and helps nobody; what was empty before makes
    // room for it.
    const bool makes_room = !files_->empty_files().empty();
    const bool moved = !number || move_values(*number, stop).ok();
    const std::vector<std::uint32_t> empty = files_->empty_files();
    if (empty.empty()) return false;
    // Rows that meant these files are gone for good first: a crash must not bring one back. The
    // sync is for rows of other values that are hardened with them; one that fails takes no space.
    (void)files_->sync();
    return rows_->harden().ok() && files_->remove(empty).ok() && (moved || makes_room);
  }

  Status move_values(std::uint32_t number, const std::stop_token& stop) {
    KeyedExtents values = index_.in_file(number);
    if (values.empty()) return {};
    // Their rows may so far be in memory alone, and would go into the log without what they belong
    // to.
    PRECIS_TRY(harden_applied());
    for (auto next = values.begin(); next != values.end();) {
      if (stop.stop_requested()) return Status::canceled("the store is closing");
      PRECIS_TRY(move_some(next, values.end()));
    }
    return {};
  }

  // Values from `next` on, as many as are moved at a time; `next` is then behind them. They were as
  // durable as asked, so their bytes are synced before any row speaks of the new place.
  Status move_some(KeyedExtents::iterator& next, KeyedExtents::iterator end) {
    constexpr std::uint64_t kMovedBytes = 16u << 20;
    std::vector<FileBlocks> bytes;
    KeyedExtents moved;
    for (std::uint64_t sum = 0; next != end && sum < kMovedBytes; ++next) {
      auto value = files_->pin(next->second).read();
      if (value.status().code() == StatusCode::kCorruption) {  // left for its reader to be told
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

  // kNotFound where the value has been removed or written again meanwhile.
  Status write_moved(const std::string& key, const Extent& from, const Extent& to) {
    if (!index_.is_at(key, from)) return Status::not_found(key);
    const ExtentRow row = encode_extent(to);
    PRECIS_TRY(rows_->write({{{Table::kPayload, key, row}}, {}, true}, Durability::kWal));
    index_.move(key, to);
    return {};
  }

  // The live_share where room is short, on a file system that punches no holes.
  static constexpr double kTightLiveShare = 0.95;

  const ExtentStoreOptions options_;
  const std::shared_ptr<SpaceGuard> guard_;  // may be null; before those who ask it
  const std::unique_ptr<Store> rows_;
  const std::unique_ptr<ExtentFiles> files_;
  std::atomic<bool> doubtful_;  // rows_->doubt(), for the tidier
  std::atomic<std::uint64_t> tidy_passes_ = 0;
  std::mutex writes_;  // one batch of rows at a time, and their place in the index with them
  // These before the index: a value that goes with it frees its extent, and says so.
  std::mutex tidy_mutex_;
  std::condition_variable_any tidy_wanted_;
  // Guarded by tidy_mutex_. Files may be sparse already, and the disk full.
  bool untidy_ = true, failing_ = true;
  bool punches_ = true;  // used by the tidier alone: the file system is not known to refuse it
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
    // A row that does not read is a value that is missing, which its reader is told.
    if (const std::optional<Extent> extent = decode_extent(value)) {
      extents.emplace(key, *extent);
      live.push_back(*extent);
    }
    return {};
  }));
  PRECIS_ASSIGN(std::unique_ptr<ExtentFiles> files,
                ExtentFiles::open(std::move(folder), live, options.file_bytes, guard.get()));
  // What an earlier process left in the machine's memory counts as durable from here on.
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
