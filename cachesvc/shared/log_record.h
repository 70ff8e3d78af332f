// The bytes of the records and snapshots of a log (shard_log.h). Pure.
//
// All begin with a magic, a format and an XXH3-64 of what follows: the place, which is the name of
// the log and a number, so that a record that was copied to another place is damage; and the
// content. Numbers are little-endian, and the length of a text is in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/shared/shared_tier.h"

namespace precis {

struct LogPlace {
  std::string log;
  std::uint64_t number = 0;
};

// One change of a log: rows of a shard, marks, or both. It has an effect only if all marks are as
// it says.
struct LogRecord {
  std::vector<SharedTier::Change> changes;
  std::uint32_t shard = 0;  // of the rows
  SharedBatch rows;
};

// The outcome of all records of a log up to one of them.
struct LogState {
  std::map<std::uint32_t, ShardMark> marks;
  std::map<std::pair<std::uint32_t, std::string>, std::vector<std::byte>> rows;
  std::size_t row_bytes = 0;  // of the keys and values, as put_row() and apply() count them

  void put_row(std::uint32_t shard, const std::string& key, Bytes value);
  std::size_t memory_bytes() const;  // that the rows take in memory, about

  enum class Fit { kMakes, kIsMade, kDiffers };
  // Whether the record makes its change now. kIsMade: all marks have their values after the change
  // already.
  Fit fit(const LogRecord& record) const;
  // Makes the change, if it is to be made.
  void apply(const LogRecord& record);
  void apply_marks(const LogRecord& record);  // and keeps no rows
  std::optional<ShardMark> mark_of(std::uint32_t shard) const;
};

std::vector<std::byte> encode(const LogPlace& place, const LogRecord& record);
std::vector<std::byte> encode(const LogPlace& place, const LogState& snapshot);

// kCorruption if the bytes are not those of this place, kVersionMismatch if a later version of this
// program has written them.
Result<LogRecord> decode_record(const LogPlace& place, Bytes bytes);
Result<LogState> decode_snapshot(const LogPlace& place, Bytes bytes);

}  // namespace precis
