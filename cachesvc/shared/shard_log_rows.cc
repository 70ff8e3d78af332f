// All rows of a log, and snapshots of them.
#include <algorithm>
#include <utility>

#include "cachesvc/shared/shard_log.h"

namespace precis {
namespace {

// A large snapshot is written less often.
constexpr std::size_t kSnapshotBytesPerRecord = 32u << 10;
constexpr std::uint64_t kSnapshotAfterMax = 1024;

}  // namespace

// One large snapshot at a time is in memory, besides the states that are kept.
Result<std::vector<std::byte>> ShardLog::fetch_snapshot(std::uint64_t number,
                                                        LogMemory::Turn& turn) const {
  const std::string name = snapshot_name(number);
  if (settings_.memory == nullptr) return store_.get(name, kSnapshotBytesMax);
  if (!is_large_) {
    auto bytes = store_.get(name, kLargeBytes);
    if (bytes.status().code() != StatusCode::kCorruption) return bytes;
  }
  turn = LogMemory::Turn(settings_.memory->large());
  auto bytes = store_.get(name, kSnapshotBytesMax);
  is_large_ = bytes.ok() && bytes->size() > kLargeBytes;
  return bytes;
}

Result<ShardLog::Whole> ShardLog::read_once(Read& read) const {
  read = {};
  PRECIS_ASSIGN(const Names names, list(0));
  read.snapshot = read.last = names.snapshot();
  if (read.snapshot > 0) {
    const auto bytes = fetch_snapshot(read.snapshot, read.turn);
    if (bytes.status().code() == StatusCode::kNotFound) return Whole::kChanges;
    PRECIS_TRY(bytes.status());
    PRECIS_ASSIGN(read.state, decode_snapshot({settings_.name, read.snapshot}, *bytes));
    read.snapshot_bytes = bytes->size();
  }
  std::map<std::uint64_t, Record> kept;
  {
    const std::lock_guard lock(kept_mutex_);
    kept = kept_;
  }
  while (names.has(read.last + 1)) {
    const std::uint64_t number = read.last + 1;
    const auto found = kept.find(number);
    const auto bytes = found == kept.end() ? fetch(number) : Result<Record>(found->second);
    if (bytes.status().code() == StatusCode::kNotFound) return Whole::kChanges;
    PRECIS_TRY(bytes.status());
    PRECIS_ASSIGN(const LogRecord record, decode_record({settings_.name, number}, **bytes));
    read.state.apply(record);
    read.last = number;
    const bool is_large = read.state.memory_bytes() > 2 * kLargeBytes;
    if (is_large && !read.turn && settings_.memory != nullptr) {
      read.turn = LogMemory::Turn(settings_.memory->large());
    }
  }
  if (names.goes_on_after(read.last)) return Whole::kGap;
  if (read.last == read.snapshot) return Whole::kYes;
  PRECIS_ASSIGN(const Names again, list(read.snapshot));
  return again.snapshot() > read.snapshot ? Whole::kChanges : Whole::kYes;
}

Result<ShardLog::Read> ShardLog::read_all() const {
  Read read;
  Whole whole = Whole::kChanges;
  for (int n = 0; n < kReadsMax; ++n) {
    PRECIS_ASSIGN(whole, read_once(read));
    if (whole == Whole::kYes) return read;
  }
  return whole == Whole::kGap ? missing(read.last + 1) : too_busy();
}

// The rows that are kept, up to the record last_, or a later one that another thread has read just
// now; null: there are none, or records since then are not in memory. The caller holds mutex_.
std::unique_ptr<LogMemory::Kept> ShardLog::take_rows() {
  if (!keeps_rows()) return nullptr;
  auto rows = settings_.memory->take(this);
  while (rows != nullptr && rows->last < last_) {
    const std::uint64_t next = rows->last + 1;
    Record bytes;
    {
      const std::lock_guard lock(kept_mutex_);
      if (const auto found = kept_.find(next); found != kept_.end()) bytes = found->second;
    }
    const auto record =
        bytes ? decode_record({settings_.name, next}, *bytes) : Result<LogRecord>(missing(next));
    if (!record.ok()) {
      settings_.memory->drop(this);
      return nullptr;
    }
    rows->state.apply(*record);
    rows->last = next;
  }
  return rows;
}

// False if the rows are not in memory.
Result<bool> ShardLog::use_kept(const Use& use) {
  if (!keeps_rows() || !settings_.memory->has(this)) return false;
  const std::lock_guard lock(mutex_);
  PRECIS_TRY(catch_up());
  auto rows = take_rows();
  if (rows == nullptr || rows->last != last_) {
    settings_.memory->drop(this);
    return false;
  }
  const Status used = use(rows->state);
  settings_.memory->give(this, std::move(rows), /*was_read=*/true);
  PRECIS_TRY(used);
  return true;
}

// Keeps the marks too, if they are later than those in memory, so that the next list need not begin
// before them.
void ShardLog::keep_rows(Read read) {
  if (!keeps_rows()) return;
  LogState marks;
  marks.marks = read.state.marks;
  const std::uint64_t last = read.last;
  auto kept = std::make_unique<LogMemory::Kept>(LogMemory::Kept{std::move(read.state), last});
  settings_.memory->give(this, std::move(kept), /*was_read=*/true);
  if (read.turn) read.turn.unlock();  // before mutex_ is locked
  const std::lock_guard lock(mutex_);
  if (last <= last_) return;
  marks_ = std::move(marks);
  last_ = counted_ = last;
}

Status ShardLog::read(const Use& use) {
  PRECIS_ASSIGN(const bool is_done, use_kept(use));
  if (is_done) return {};
  PRECIS_ASSIGN(Read read, read_all());
  PRECIS_TRY(use(read.state));
  keep_rows(std::move(read));
  return {};
}

Status ShardLog::tidy(const std::atomic<bool>& is_ending) {
  PRECIS_ASSIGN(Read read, read_all());
  // Half of it, because the last snapshot may have been made late.
  const std::uint64_t wanted = std::max(
      settings_.snapshot_after / 2,
      std::min<std::uint64_t>(kSnapshotAfterMax, read.snapshot_bytes / kSnapshotBytesPerRecord));
  if (read.last - read.snapshot < wanted) {
    read.forget();
    return remove_until(read.snapshot, is_ending);
  }
  if (is_ending) return {};
  if (read.state.row_bytes > kSnapshotBytesMax) {
    return too_large("a snapshot", read.state.row_bytes);
  }
  {
    const auto bytes = encode(LogPlace{settings_.name, read.last}, read.state);
    if (bytes.size() > kSnapshotBytesMax) return too_large("a snapshot", bytes.size());
    // If another machine has made the snapshot of this number, it is the same.
    PRECIS_TRY(store_.create(snapshot_name(read.last), bytes).status());
  }
  read.forget();
  return remove_until(read.last, is_ending);
}

// Removes what comes before the snapshot.
Status ShardLog::remove_until(std::uint64_t snapshot, const std::atomic<bool>& is_ending) {
  tidied_ = snapshot;
  PRECIS_ASSIGN(const Names names, list(0));
  for (const std::uint64_t number : names.records) {
    if (is_ending) return {};
    if (number <= snapshot) PRECIS_TRY(store_.remove(record_name(number)));
  }
  for (const std::uint64_t number : names.snapshots) {
    if (number < snapshot) PRECIS_TRY(store_.remove(snapshot_name(number)));
  }
  return {};
}

}  // namespace precis
