#include "cachesvc/shared/log_objects.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace precis {
namespace {

constexpr std::size_t kDigits = 20;
constexpr std::string_view kSnapshotEnd = ".s";  // so that it comes after the record of its number
constexpr std::size_t kRecordBytesMax = 64u << 20, kSnapshotBytesMax = 1u << 30;
constexpr int kPagesMax = 1000;

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

Status too_large(const std::string& what, std::size_t bytes) {
  return Status::invalid("write " + what + " of " + std::to_string(bytes) +
                         " bytes to a log: it is too large");
}

}  // namespace

bool LogObjects::Names::has(std::uint64_t record) const {
  return std::ranges::binary_search(records, record);
}

bool LogObjects::Names::goes_on_after(std::uint64_t record) const {
  return !records.empty() && records.back() > record;
}

std::string LogObjects::record_name(std::uint64_t number) const {
  return log_ + "/" + digits_of(number);
}

std::string LogObjects::snapshot_name(std::uint64_t number) const {
  return record_name(number) + std::string(kSnapshotEnd);
}

Status LogObjects::missing(std::uint64_t number) const {
  return Status::corruption("the object " + record_name(number) +
                            " is missing, and later ones are there");
}

Result<LogObjects::Names> LogObjects::list(std::uint64_t from) const {
  const std::string prefix = log_ + "/";
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
  return Status::corruption("the log " + log_ + " has too many objects");
}

Result<LogObjects::Record> LogObjects::record(std::uint64_t number) const {
  PRECIS_ASSIGN(auto bytes, store_.get(record_name(number), kRecordBytesMax));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Result<bool> LogObjects::create_record(std::uint64_t number, Bytes bytes) {
  if (bytes.size() > kRecordBytesMax) return too_large("a change", bytes.size());
  return store_.create(record_name(number), bytes);
}

// One large snapshot at a time is in memory, besides the states that are kept.
Result<std::vector<std::byte>> LogObjects::snapshot_bytes(std::uint64_t number,
                                                          LogMemory::Turn& turn) const {
  const std::string name = snapshot_name(number);
  if (memory_ == nullptr) return store_.get(name, kSnapshotBytesMax);
  if (!is_large_) {
    auto bytes = store_.get(name, kLargeBytes);
    if (bytes.status().code() != StatusCode::kCorruption) return bytes;
  }
  turn = LogMemory::Turn(memory_->large());
  auto bytes = store_.get(name, kSnapshotBytesMax);
  is_large_ = bytes.ok() && bytes->size() > kLargeBytes;
  return bytes;
}

Result<LogObjects::Snapshot> LogObjects::snapshot(std::uint64_t number) const {
  Snapshot snapshot;
  PRECIS_ASSIGN(const auto bytes, snapshot_bytes(number, snapshot.turn));
  PRECIS_ASSIGN(snapshot.state, decode_snapshot({log_, number}, bytes));
  snapshot.bytes = bytes.size();
  return snapshot;
}

Status LogObjects::create_snapshot(std::uint64_t number, const LogState& state) {
  if (state.row_bytes > kSnapshotBytesMax) return too_large("a snapshot", state.row_bytes);
  const auto bytes = encode(LogPlace{log_, number}, state);
  if (bytes.size() > kSnapshotBytesMax) return too_large("a snapshot", bytes.size());
  // If another machine has made the snapshot of this number, it is the same.
  return store_.create(snapshot_name(number), bytes).status();
}

Status LogObjects::remove_before(std::uint64_t snapshot, const std::atomic<bool>& is_ending) {
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
