#include "cachesvc/shared/shard_log.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace precis {
namespace {

constexpr std::size_t kDigits = 20;
constexpr std::string_view kSnapshotEnd = ".s";  // so that it comes after the record of its number
constexpr std::size_t kRecordBytesMax = 64u << 20;
constexpr int kPagesMax = 1000;
constexpr int kAttemptsMax = 64;  // other machines may change the log all the time

std::string digits_of(std::uint64_t number) {
  const std::string text = std::to_string(number);
  return std::string(kDigits - text.size(), '0') + text;
}

// None if the text is not as digits_of() gives it.
std::optional<std::uint64_t> number_of(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.size() != kDigits || text.front() != '0' || !std::ranges::all_of(text, is_digit)) {
    return {};
  }
  std::uint64_t number = 0;
  for (const char digit : text) number = number * 10 + static_cast<std::uint64_t>(digit - '0');
  return number;
}

}  // namespace

bool ShardLog::Names::has(std::uint64_t record) const {
  return std::ranges::binary_search(records, record);
}

bool ShardLog::Names::goes_on_after(std::uint64_t record) const {
  return !records.empty() && records.back() > record;
}

std::string ShardLog::record_name(std::uint64_t number) const {
  return settings_.name + "/" + digits_of(number);
}

std::string ShardLog::snapshot_name(std::uint64_t number) const {
  return record_name(number) + std::string(kSnapshotEnd);
}

Status ShardLog::missing(std::uint64_t number) const {
  return Status::corruption("the object " + record_name(number) +
                            " is missing, and later ones are there");
}

Status ShardLog::too_busy() const {
  return Status::unavailable("the log " + settings_.name + " is changed by others all the time");
}

Status ShardLog::too_large(const std::string& what, std::size_t bytes) {
  return Status::invalid("write " + what + " of " + std::to_string(bytes) +
                         " bytes to a log: it is too large");
}

Status ShardLog::removed_in_use() const {
  return Status::corruption("the log " + settings_.name + " was removed while it was in use");
}

// The names from the record `from` on.
Result<ShardLog::Names> ShardLog::list(std::uint64_t from) const {
  const std::string prefix = settings_.name + "/";
  std::string after = from == 0 ? "" : snapshot_name(from - 1);
  Names names;
  for (int page = 0; page < kPagesMax; ++page) {
    PRECIS_ASSIGN(const ObjectStore::Page found, store_.list(prefix, after));
    // A list that ends too early looks like a log that does.
    if (found.more && found.names.empty()) {
      return Status::unavailable("a list of " + prefix + " goes on after a page without names");
    }
    for (const std::string& name : found.names) {
      if (name <= after) return Status::unavailable("a list of " + prefix + " is not in order");
      after = name;
      std::string_view rest = name;
      if (!rest.starts_with(prefix)) continue;
      rest.remove_prefix(prefix.size());
      const bool is_snapshot = rest.ends_with(kSnapshotEnd);
      if (is_snapshot) rest.remove_suffix(kSnapshotEnd.size());
      const auto number = number_of(rest);
      if (!number || *number < from) continue;  // nothing that this class writes
      (is_snapshot ? names.snapshots : names.records).push_back(*number);
    }
    if (!found.more) return names;
  }
  return Status::corruption("the log " + settings_.name + " has too many objects");
}

Result<ShardLog::Record> ShardLog::fetch(std::uint64_t number) const {
  PRECIS_ASSIGN(auto bytes, store_.get(record_name(number), kRecordBytesMax));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
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
  LogMemory::Turn turn;
  const auto bytes = fetch_snapshot(snapshot, turn);
  if (bytes.status().code() == StatusCode::kNotFound) return {};
  PRECIS_TRY(bytes.status());
  PRECIS_ASSIGN(LogState state, decode_snapshot({settings_.name, snapshot}, *bytes));
  marks_.marks = state.marks;
  last_ = counted_ = snapshot;
  if (!keeps_rows()) return {};
  auto kept = std::make_unique<LogMemory::Kept>(LogMemory::Kept{std::move(state), snapshot});
  settings_.memory->give(this, std::move(kept), was_read);
  return {};
}

// Lists the names again, and learns whether the records up to `end`, which exist, count. Otherwise
// the marks in memory are replaced by others, which may be old.
Result<ShardLog::Verified> ShardLog::verify(Names& names, std::uint64_t end) {
  PRECIS_ASSIGN(names, list(counted_));
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
  const auto bytes = fetch(number);
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
  return has_gap ? missing(last_ + 1) : too_busy();
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
    if (bytes->size() > kRecordBytesMax) return too_large("a change", bytes->size());
    PRECIS_ASSIGN(const bool created, store_.create(record_name(number), *bytes));
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

}  // namespace precis
