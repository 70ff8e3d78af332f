#include "cachesvc/shared/shard_log.h"

#include <algorithm>
#include <utility>

namespace precis {
namespace {

constexpr int kAttemptsMax = 64;  // other machines may change the log all the time
// A large snapshot is written less often.
constexpr std::size_t kSnapshotBytesPerRecord = 32u << 10;
constexpr std::uint64_t kSnapshotAfterMax = 1024;

}  // namespace

Status ShardLog::too_busy() const {
  return Status::unavailable("the log " + settings_.name + " is changed by others all the time");
}

Status ShardLog::removed_in_use() const {
  return Status::corruption("the log " + settings_.name + " was removed while it was in use");
}

// The caller holds mutex_, and the record is the last one.
void ShardLog::keep(std::uint64_t number, Record bytes) {
  {
    const std::lock_guard lock(kept_mutex_);
    kept_bytes_ += bytes->size();
    kept_.insert_or_assign(number, std::move(bytes));
    if (kept_bytes_ <= settings_.kept_bytes_max) return;
  }
  // The rows that are kept need the records that are forgotten now.
  if (auto rows = take_rows()) settings_.memory->give(this, std::move(rows), /*was_read=*/false);
  const std::lock_guard lock(kept_mutex_);
  while (kept_bytes_ > settings_.kept_bytes_max && !kept_.empty()) {
    kept_bytes_ -= kept_.begin()->second->size();
    kept_.erase(kept_.begin());
  }
}

// ---- the marks in memory; the caller holds mutex_

void ShardLog::forget() {
  marks_ = {};
  last_ = counted_ = 0;
  if (keeps_rows()) settings_.memory->drop(this);
  const std::lock_guard lock(kept_mutex_);
  kept_.clear();
  kept_bytes_ = 0;
}

// A snapshot that is gone has been replaced by a later one. A node that takes shards reads the
// marks and then the rows, which the snapshot has too.
Status ShardLog::load(std::uint64_t snapshot) {
  const bool was_read = keeps_rows() && settings_.memory->has(this);
  forget();
  auto found = objects_.snapshot(snapshot);
  if (found.status().code() == StatusCode::kNotFound) return {};
  PRECIS_TRY(found.status());
  marks_.marks = found->state.marks;
  last_ = counted_ = snapshot;
  if (!keeps_rows()) return {};
  auto kept = std::make_unique<LogMemory::Kept>(LogMemory::Kept{std::move(found->state), snapshot});
  settings_.memory->give(this, std::move(kept), was_read);
  return {};
}

// Lists the names again, and learns whether the records up to `end`, which exist, count. Otherwise
// the marks in memory are replaced by others, which may be old.
Result<ShardLog::Verified> ShardLog::verify(Names& names, std::uint64_t end) {
  PRECIS_ASSIGN(names, objects_.list(counted_));
  if (names.snapshot() > counted_) {
    PRECIS_TRY(load(names.snapshot()));
    return Verified::kReplaced;
  }
  // Somebody has removed the whole log: then it is empty, and may have begun anew.
  if (counted_ > 0 && names.snapshot() != counted_ && !names.has(counted_)) {
    if (!settings_.may_be_removed) return removed_in_use();
    forget();
    return Verified::kGone;
  }
  counted_ = end;
  return Verified::kCounts;
}

// Replays the next record. False if there is none.
Result<bool> ShardLog::replay_next() {
  const std::uint64_t number = last_ + 1;
  const auto bytes = objects_.record(number);
  if (bytes.status().code() == StatusCode::kNotFound) return false;
  PRECIS_TRY(bytes.status());
  PRECIS_ASSIGN(const LogRecord record, decode_record({settings_.name, number}, **bytes));
  marks_.apply_marks(record);
  last_ = number;
  keep(number, *bytes);
  return true;
}

Status ShardLog::catch_up() {
  std::optional<std::uint64_t> end;  // the records that existed when the call began
  bool has_gap = false;
  for (int n = 0; n < kReadsMax; ++n) {
    bool forgot = false;
    Names names;
    PRECIS_ASSIGN(const Verified verified, verify(names, last_));
    if (verified != Verified::kCounts) {
      end.reset();
      continue;
    }
    if ((end && counted_ >= *end) || !names.goes_on_after(last_)) return {};
    while (names.has(last_ + 1)) {
      PRECIS_ASSIGN(const bool replayed, replay_next());
      if (replayed) continue;
      forget();  // a snapshot has replaced it
      forgot = true;
      break;
    }
    // A list may lack a record that was created meanwhile, and have the next one.
    has_gap = !forgot && names.goes_on_after(last_);
    if (!has_gap && !forgot) end = last_;
  }
  return has_gap ? objects_.missing(last_ + 1) : too_busy();
}

Result<LogState> ShardLog::marks() {
  const std::lock_guard lock(mutex_);
  PRECIS_TRY(catch_up());
  return marks_;
}

Result<ShardLog::Appended> ShardLog::append(const LogRecord& record) {
  const std::lock_guard lock(mutex_);
  const bool is_common = record.changes.empty();  // rare, and its log may be removed by a person
  bool is_fresh = false;
  for (int n = 0; n < kAttemptsMax; ++n) {
    if (!is_fresh && (last_ == 0 || is_common || marks_.fit(record) != LogState::Fit::kMakes)) {
      PRECIS_TRY(catch_up());
      is_fresh = true;
    }
    const LogState::Fit fit = marks_.fit(record);
    if (fit != LogState::Fit::kMakes) {
      return Appended{fit, marks_, false};
    }
    is_fresh = false;
    const std::uint64_t number = last_ + 1;
    auto bytes = std::make_shared<const std::vector<std::byte>>(
        encode(LogPlace{settings_.name, number}, record));
    PRECIS_ASSIGN(const bool created, objects_.create_record(number, *bytes));
    if (!created) {
      if (n > 0) {  // many records may have come
        PRECIS_TRY(catch_up());
        is_fresh = true;
        continue;
      }
      // Whether that record counts is learned together with the next one.
      PRECIS_ASSIGN(const bool replayed, replay_next());
      if (!replayed) forget();
      continue;
    }
    Names names;
    PRECIS_ASSIGN(const Verified verified, verify(names, number));
    if (verified == Verified::kGone) return removed_in_use();
    if (verified == Verified::kReplaced) continue;  // it may count: then the marks say so
    marks_.apply_marks(record);
    last_ = number;
    keep(number, std::move(bytes));
    // Later ones ask again, in case that the first did not make it.
    const std::uint64_t every = number > tidied_ + 2 * settings_.snapshot_after
                                    ? settings_.snapshot_after / 8
                                    : settings_.snapshot_after;
    return Appended{fit, {}, number % std::max<std::uint64_t>(every, 1) == 0};
  }
  return too_busy();
}

// ---- all rows, and snapshots of them

Result<ShardLog::Whole> ShardLog::read_once(Read& read) const {
  read = {};
  PRECIS_ASSIGN(const Names names, objects_.list(0));
  read.snapshot = read.last = names.snapshot();
  if (read.snapshot > 0) {
    auto snapshot = objects_.snapshot(read.snapshot);
    if (snapshot.status().code() == StatusCode::kNotFound) return Whole::kChanges;
    PRECIS_TRY(snapshot.status());
    read.state = std::move(snapshot->state);
    read.snapshot_bytes = snapshot->bytes;
    read.turn = std::move(snapshot->turn);
  }
  std::map<std::uint64_t, Record> kept;
  {
    const std::lock_guard lock(kept_mutex_);
    kept = kept_;
  }
  while (names.has(read.last + 1)) {
    const std::uint64_t number = read.last + 1;
    const auto found = kept.find(number);
    const auto bytes =
        found == kept.end() ? objects_.record(number) : Result<Record>(found->second);
    if (bytes.status().code() == StatusCode::kNotFound) return Whole::kChanges;
    PRECIS_TRY(bytes.status());
    PRECIS_ASSIGN(const LogRecord record, decode_record({settings_.name, number}, **bytes));
    read.state.apply(record);
    read.last = number;
    const bool is_large = read.state.memory_bytes() > 2 * LogObjects::kLargeBytes;
    if (is_large && !read.turn && settings_.memory != nullptr) {
      read.turn = LogMemory::Turn(settings_.memory->large());
    }
  }
  if (names.goes_on_after(read.last)) return Whole::kGap;
  if (read.last == read.snapshot) return Whole::kYes;
  PRECIS_ASSIGN(const Names again, objects_.list(read.snapshot));
  return again.snapshot() > read.snapshot ? Whole::kChanges : Whole::kYes;
}

Result<ShardLog::Read> ShardLog::read_all() const {
  Read read;
  Whole whole = Whole::kChanges;
  for (int n = 0; n < kReadsMax; ++n) {
    PRECIS_ASSIGN(whole, read_once(read));
    if (whole == Whole::kYes) return read;
  }
  return whole == Whole::kGap ? objects_.missing(read.last + 1) : too_busy();
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
    const auto record = bytes ? decode_record({settings_.name, next}, *bytes)
                              : Result<LogRecord>(objects_.missing(next));
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
  std::uint64_t snapshot = read.snapshot;
  if (read.last - read.snapshot >= wanted) {
    if (is_ending) return {};
    PRECIS_TRY(objects_.create_snapshot(read.last, read.state));
    snapshot = read.last;
  }
  read.forget();
  tidied_ = snapshot;
  return objects_.remove_before(snapshot, is_ending);
}

}  // namespace precis
