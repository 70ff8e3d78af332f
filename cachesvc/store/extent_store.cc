// Order of a write: values, then (at kFsync) their sync, then one batch of rows. Order of a
// removal: the batch, then the space, and a file goes only when no crash can bring back a row that
// means it.
#include "cachesvc/store/extent_store.h"

#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/extent_row.h"
#include "cachesvc/store/rocksdb_store.h"

namespace precis {
namespace {

class ExtentStore final : public Store {
 public:
  ExtentStore(std::unique_ptr<Store> rows, std::map<std::string, Extent, std::less<>> extents,
              std::unique_ptr<ExtentFiles> files, double live_share)
      : rows_(std::move(rows)),
        files_(std::move(files)),
        live_share_(live_share),
        extents_(std::move(extents)),
        tidier_([this](const std::stop_token& stop) { tidy_until(stop); }) {}

  Status write(const StoreBatch& batch, Durability durability) override {
    StoreBatch rows;
    std::vector<Bytes> values;
    std::vector<std::string> keys;
    for (const StoreBatch::Put& put : batch.puts) {
      if (put.table != Table::kPayload) {
        rows.puts.push_back(put);
        continue;
      }
      keys.push_back(put.key);
      values.push_back(put.value);
    }
    rows.deletes = batch.deletes;
    const auto appended = files_->append(values);
    if (!appended.ok()) {
      wake_tidier();  // there may be space to be had
      return appended.status();
    }
    const std::vector<Extent>& extents = *appended;
    std::vector<ExtentRow> encoded;
    for (const Extent& extent : extents) encoded.push_back(encode_extent(extent));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      rows.puts.push_back({Table::kPayload, keys[i], encoded[i]});
    }
    Status status = durability == Durability::kFsync ? files_->sync() : Status();
    std::vector<Extent> gone;
    if (status.ok()) {
      std::lock_guard writing(writes_);
      status = rows_->write(rows, durability);
      if (status.ok()) gone = replace(keys, extents, batch.deletes);
    }
    for (const Extent& extent : status.ok() ? gone : extents) files_->free(extent);
    if (!gone.empty() || !status.ok()) wake_tidier();
    return status;
  }

  Status harden() override {
    PRECIS_TRY(files_->sync());
    return rows_->harden();
  }

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    if (table != Table::kPayload) return rows_->get(table, key);
    PRECIS_ASSIGN(const Found found, find(key));
    return found.pin.read();
  }

  Status read_into(Table table, const std::string& key, MutableBytes into) override {
    if (table != Table::kPayload) return rows_->read_into(table, key, into);
    PRECIS_ASSIGN(const Found found, find(key));
    if (into.size() == found.size) return found.pin.read(into);
    return Status::corruption("payload: " + std::to_string(found.size) + " B are stored, " +
                              std::to_string(into.size()) + " B expected");
  }

  Status scan(Table table,
              const std::function<Status(std::string_view key, Bytes value)>& row) override {
    if (table != Table::kPayload) return rows_->scan(table, row);
    std::vector<std::string> keys;
    {
      std::shared_lock lock(index_);
      for (const auto& [key, extent] : extents_) keys.push_back(key);
    }
    for (const std::string& key : keys) {
      const auto value = get(table, key);
      if (value.status().code() == StatusCode::kNotFound) continue;  // removed meanwhile
      PRECIS_TRY(value.status());
      PRECIS_TRY(row(key, *value));
    }
    return {};
  }

  StoreStats stats() override {
    StoreStats stats = rows_->stats();
    const ExtentFiles::Stats files = files_->stats();
    stats.disk_bytes += files.file_bytes;
    stats.payload_bytes = files.live_bytes;
    return stats;
  }

 private:
  struct Found {
    ExtentFiles::Pin pin;
    std::uint64_t size;
  };
  // The pin is taken before the value can be moved.
  Result<Found> find(const std::string& key) const {
    std::shared_lock lock(index_);
    const auto extent = extents_.find(key);
    if (extent == extents_.end()) return Status::not_found("payload: no such value");
    return Found{files_->pin(extent->second), extent->second.size};
  }

  // With writes_ held, once the rows are written. What counts no more.
  std::vector<Extent> replace(const std::vector<std::string>& keys,
                              const std::vector<Extent>& extents,
                              const std::vector<StoreBatch::Delete>& deletes) {
    std::vector<Extent> gone;
    std::unique_lock lock(index_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [at, added] = extents_.try_emplace(keys[i], extents[i]);
      if (!added) gone.push_back(std::exchange(at->second, extents[i]));
    }
    for (const StoreBatch::Delete& each : deletes) {
      if (each.table != Table::kPayload) continue;
      const auto at = extents_.find(each.key);
      if (at == extents_.end()) continue;
      gone.push_back(at->second);
      extents_.erase(at);
    }
    return gone;
  }

  // ---- space that counts no more

  void wake_tidier() {
    {
      std::lock_guard lock(tidy_mutex_);
      untidy_ = true;
    }
    tidy_wanted_.notify_one();
  }

  void tidy_until(const std::stop_token& stop) {
    std::unique_lock lock(tidy_mutex_);
    while (tidy_wanted_.wait(lock, stop, [this] { return untidy_; })) {
      untidy_ = false;
      lock.unlock();
      // What fails, on a full disk say, is tried again when more space is freed.
      while (!stop.stop_requested() && tidy(stop)) {
      }
      lock.lock();
    }
  }

  using KeyedExtents = std::vector<std::pair<std::string, Extent>>;

  // Empties the sparsest file, then removes what is empty. False once nothing is left to do.
  bool tidy(const std::stop_token& stop) {
    const auto number = files_->sparsest(live_share_);
    if (number && !move_values(*number, stop).ok()) return false;
    const std::vector<std::uint32_t> empty = files_->empty_files();
    if (empty.empty()) return false;
    // Rows that meant these files are gone for good first: a crash must not bring one back. The
    // sync is for rows of other values that are hardened with them; one that fails takes no space.
    (void)files_->sync();
    return rows_->harden().ok() && files_->remove(empty).ok();
  }

  Status move_values(std::uint32_t number, const std::stop_token& stop) {
    KeyedExtents values;
    {
      std::shared_lock lock(index_);
      for (const auto& [key, extent] : extents_) {
        if (extent.file == number) values.emplace_back(key, extent);
      }
    }
    // Their rows may so far be in memory alone, and would go into the log without what they belong
    // to.
    PRECIS_TRY(harden());
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
    std::vector<std::vector<std::byte>> bytes;
    KeyedExtents moved;
    for (std::uint64_t sum = 0; next != end && sum < kMovedBytes; ++next) {
      auto value = files_->pin(next->second).read();
      if (value.status().code() == StatusCode::kCorruption) {  // left for its reader to be told
        files_->set_aside(next->second.file);
        continue;
      }
      PRECIS_TRY(value.status());
      sum += value->size();
      moved.push_back(*next);
      bytes.push_back(std::move(*value));
    }
    const std::vector<Bytes> values(bytes.begin(), bytes.end());
    PRECIS_ASSIGN(const std::vector<Extent> places, files_->append(values));
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
    {
      std::shared_lock lock(index_);
      const auto at = extents_.find(key);
      if (at == extents_.end() || !(at->second == from)) return Status::not_found(key);
    }
    const ExtentRow row = encode_extent(to);
    PRECIS_TRY(rows_->write({{{Table::kPayload, key, row}}, {}}, Durability::kWal));
    std::unique_lock lock(index_);
    extents_.find(key)->second = to;
    return {};
  }

  const std::unique_ptr<Store> rows_;
  const std::unique_ptr<ExtentFiles> files_;
  const double live_share_;
  std::mutex writes_;                // one batch of rows at a time; before index_
  mutable std::shared_mutex index_;  // held for no I/O
  std::map<std::string, Extent, std::less<>> extents_;  // guarded by index_
  std::mutex tidy_mutex_;
  std::condition_variable_any tidy_wanted_;
  bool untidy_ = true;   // guarded by tidy_mutex_; files may be sparse already
  std::jthread tidier_;  // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<Store>> open_extent_store(std::unique_ptr<Store> rows,
                                                 std::unique_ptr<Folder> folder,
                                                 const ExtentStoreOptions& options) {
  std::map<std::string, Extent, std::less<>> extents;
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
                ExtentFiles::open(std::move(folder), live, options.file_bytes));
  // What an earlier process left in the machine's memory counts as durable from here on.
  PRECIS_TRY(files->sync());
  PRECIS_TRY(rows->harden());
  return std::unique_ptr<Store>(std::make_unique<ExtentStore>(
      std::move(rows), std::move(extents), std::move(files), options.live_share));
}

Result<std::unique_ptr<Store>> open_disk_store(const std::string& dir) {
  PRECIS_ASSIGN(std::unique_ptr<Store> rows, open_rocksdb_store(dir));
  PRECIS_ASSIGN(std::unique_ptr<Folder> folder, open_posix_folder(dir + "/payload"));
  return open_extent_store(std::move(rows), std::move(folder));
}

}  // namespace precis
