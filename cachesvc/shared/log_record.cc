#include "cachesvc/shared/log_record.h"

#include <algorithm>
#include <optional>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cachesvc/shared/shard_marks.h"
#include "precis/little_endian.h"

namespace precis {
namespace {

constexpr std::uint32_t kMagic = 0x474c5250;  // "PRLG"
constexpr std::uint16_t kFormat = 1;
enum class Kind : std::uint16_t { kRecord = 1, kSnapshot = 2 };
constexpr std::size_t kCheckedFrom = 16;  // the bytes before are the magic, format, kind and check
// A row of a state takes so much besides its key and value: a node of a map, three allocations.
constexpr std::size_t kRowOverhead = 144;

void put_block(std::vector<std::byte>& out, Bytes bytes) {
  put_le(out, static_cast<std::uint32_t>(bytes.size()));
  put_bytes(out, bytes);
}
void put_text(std::vector<std::byte>& out, std::string_view text) {
  put_block(out, std::as_bytes(std::span(text)));
}
void put_count(std::vector<std::byte>& out, std::size_t count) {
  put_le(out, static_cast<std::uint64_t>(count));
}
Bytes get_block(LeReader& reader) { return reader.take(reader.get<std::uint32_t>()); }
std::string get_text(LeReader& reader) {
  const Bytes text = get_block(reader);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

// Each item takes at least `bytes_min`, so a wrong count ends at the end of the bytes.
std::uint64_t get_count(LeReader& reader, std::size_t bytes_min) {
  const auto count = reader.get<std::uint64_t>();
  if (count <= reader.rest().size() / bytes_min) return count;
  reader.take(reader.rest().size() + 1);  // now it is not ok()
  return 0;
}

std::vector<std::byte> begin(const LogPlace& place) {
  std::vector<std::byte> bytes(kCheckedFrom);
  put_text(bytes, place.log);
  put_le(bytes, place.number);
  return bytes;
}

// The check is over the format and kind too, as the seed.
std::uint64_t check_of(Bytes bytes, std::uint16_t format, std::uint16_t kind) {
  const std::uint64_t seed = (std::uint64_t{format} << 16) | kind;
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::vector<std::byte> end(std::vector<std::byte> bytes, Kind kind) {
  const auto kind_number = static_cast<std::uint16_t>(kind);
  std::vector<std::byte> head;
  put_le(head, kMagic);
  put_le(head, kFormat);
  put_le(head, kind_number);
  put_le(head, check_of(Bytes(bytes).subspan(kCheckedFrom), kFormat, kind_number));
  std::ranges::copy(head, bytes.begin());
  return bytes;
}

Status damaged(const LogPlace& place, const std::string& what) {
  return Status::corruption("read " + std::to_string(place.number) + " of the log " + place.log +
                            ": " + what);
}

// The content, after the head and the place.
Result<LeReader> open(const LogPlace& place, Bytes bytes, Kind kind) {
  LeReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto format = reader.get<std::uint16_t>();
  const auto found_kind = reader.get<std::uint16_t>();
  const auto check = reader.get<std::uint64_t>();
  if (!reader.ok() || magic != kMagic) return damaged(place, "it is no record of a log");
  if (check != check_of(reader.rest(), format, found_kind)) {
    return damaged(place, "its checksum is wrong");
  }
  if (format != kFormat) {
    return Status::version("read " + std::to_string(place.number) + " of the log " + place.log +
                           ": its format is " + std::to_string(format) +
                           ", and this version knows " + std::to_string(kFormat));
  }
  const std::string log = get_text(reader);
  const auto number = reader.get<std::uint64_t>();
  if (!reader.ok() || log != place.log || number != place.number ||
      found_kind != static_cast<std::uint16_t>(kind)) {
    return damaged(place, "it was written for another place");
  }
  return reader;
}

void put_change(std::vector<std::byte>& out, const SharedTier::Change& change) {
  put_le(out, change.shard);
  put_block(out, change.from ? encode(*change.from) : std::vector<std::byte>());
  put_block(out, encode(change.to));
}

Result<SharedTier::Change> get_change(LeReader& reader) {
  SharedTier::Change change;
  change.shard = reader.get<std::uint32_t>();
  const Bytes from = get_block(reader), to = get_block(reader);
  if (!from.empty()) {
    PRECIS_ASSIGN(change.from, decode_mark(from));
  }
  PRECIS_ASSIGN(change.to, decode_mark(to));
  if (change.shard >= kShards) return Status::corruption("a mark is of no shard");
  return change;
}

}  // namespace

std::optional<ShardMark> LogState::mark_of(std::uint32_t shard) const {
  const auto found = marks.find(shard);
  return found == marks.end() ? std::nullopt : std::optional(found->second);
}

LogState::Fit LogState::fit(const LogRecord& record) const {
  const auto is_from = [&](const auto& change) { return mark_of(change.shard) == change.from; };
  const auto is_to = [&](const auto& change) { return mark_of(change.shard) == change.to; };
  if (std::ranges::all_of(record.changes, is_from)) return Fit::kMakes;
  return std::ranges::all_of(record.changes, is_to) ? Fit::kIsMade : Fit::kDiffers;
}

void LogState::put_row(std::uint32_t shard, const std::string& key, Bytes value) {
  const auto [at, is_new] = rows.try_emplace({shard, key});
  row_bytes += is_new ? key.size() : 0;
  row_bytes -= at->second.size();
  row_bytes += value.size();
  at->second.assign(value.begin(), value.end());
}

std::size_t LogState::memory_bytes() const { return row_bytes + rows.size() * kRowOverhead; }

void LogState::apply_marks(const LogRecord& record) {
  if (fit(record) != Fit::kMakes) return;
  for (const SharedTier::Change& change : record.changes) marks[change.shard] = change.to;
}

void LogState::apply(const LogRecord& record) {
  if (fit(record) != Fit::kMakes) return;
  for (const SharedTier::Change& change : record.changes) marks[change.shard] = change.to;
  for (const auto& [key, value] : record.rows.puts) put_row(record.shard, key, value);
  for (const std::string& key : record.rows.deletes) {
    const auto found = rows.find({record.shard, key});
    if (found == rows.end()) continue;
    row_bytes -= key.size() + found->second.size();
    rows.erase(found);
  }
}

std::vector<std::byte> encode(const LogPlace& place, const LogRecord& record) {
  auto bytes = begin(place);
  put_count(bytes, record.changes.size());
  for (const SharedTier::Change& change : record.changes) put_change(bytes, change);
  put_le(bytes, record.shard);
  put_count(bytes, record.rows.puts.size());
  for (const auto& [key, value] : record.rows.puts) {
    put_text(bytes, key);
    put_block(bytes, value);
  }
  put_count(bytes, record.rows.deletes.size());
  for (const std::string& key : record.rows.deletes) put_text(bytes, key);
  return end(std::move(bytes), Kind::kRecord);
}

Result<LogRecord> decode_record(const LogPlace& place, Bytes bytes) {
  PRECIS_ASSIGN(LeReader reader, open(place, bytes, Kind::kRecord));
  LogRecord record;
  for (auto left = get_count(reader, 12); left > 0 && reader.ok(); --left) {
    auto change = get_change(reader);
    if (!change.ok()) return damaged(place, change.status().message());
    record.changes.push_back(*std::move(change));
  }
  record.shard = reader.get<std::uint32_t>();
  for (auto left = get_count(reader, 8); left > 0 && reader.ok(); --left) {
    std::string key = get_text(reader);
    const Bytes value = get_block(reader);
    record.rows.puts.emplace_back(std::move(key), std::vector(value.begin(), value.end()));
  }
  for (auto left = get_count(reader, 4); left > 0 && reader.ok(); --left) {
    record.rows.deletes.push_back(get_text(reader));
  }
  if (!reader.ok() || !reader.rest().empty() || record.shard >= kShards) {
    return damaged(place, "its bytes are not those of a record");
  }
  return record;
}

std::vector<std::byte> encode(const LogPlace& place, const LogState& snapshot) {
  auto bytes = begin(place);
  put_count(bytes, snapshot.marks.size());
  for (const auto& [shard, mark] : snapshot.marks) {
    put_le(bytes, shard);
    put_block(bytes, encode(mark));
  }
  put_count(bytes, snapshot.rows.size());
  for (const auto& [name, value] : snapshot.rows) {
    put_le(bytes, name.first);
    put_text(bytes, name.second);
    put_block(bytes, value);
  }
  return end(std::move(bytes), Kind::kSnapshot);
}

Result<LogState> decode_snapshot(const LogPlace& place, Bytes bytes) {
  PRECIS_ASSIGN(LeReader reader, open(place, bytes, Kind::kSnapshot));
  LogState state;
  for (auto left = get_count(reader, 8); left > 0 && reader.ok(); --left) {
    const auto shard = reader.get<std::uint32_t>();
    const auto mark = decode_mark(get_block(reader));
    if (!mark.ok() || shard >= kShards) return damaged(place, "a mark cannot be read");
    state.marks[shard] = *mark;
  }
  for (auto left = get_count(reader, 12); left > 0 && reader.ok(); --left) {
    const auto shard = reader.get<std::uint32_t>();
    const std::string key = get_text(reader);
    const Bytes value = get_block(reader);
    if (shard >= kShards) return damaged(place, "a row is of no shard");
    state.put_row(shard, key, value);
  }
  if (!reader.ok() || !reader.rest().empty()) {
    return damaged(place, "its bytes are not those of a snapshot");
  }
  return state;
}

}  // namespace precis
