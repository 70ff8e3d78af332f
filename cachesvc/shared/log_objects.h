// The objects of a log (shard_log.h): one per record and per snapshot, named by its number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/shared/log_memory.h"
#include "cachesvc/shared/log_record.h"
#include "cachesvc/shared/object_store.h"

namespace precis {

// Thread-safe. Calls block. Errors as ObjectStore's, or those of log_record.h.
class LogObjects {
 public:
  // `store` and `memory` outlive it. `memory` may be null.
  LogObjects(ObjectStore& store, std::string log, LogMemory* memory)
      : store_(store), log_(std::move(log)), memory_(memory) {}

  struct Names {
    std::vector<std::uint64_t> records, snapshots;  // in their order
    std::uint64_t snapshot() const { return snapshots.empty() ? 0 : snapshots.back(); }
    bool has(std::uint64_t record) const;
    bool goes_on_after(std::uint64_t record) const;
  };
  // The names from the record `from` on.
  Result<Names> list(std::uint64_t from) const;

  using Record = std::shared_ptr<const std::vector<std::byte>>;
  Result<Record> record(std::uint64_t number) const;
  // False if there is one of this number. kInvalidArgument if it is too large.
  Result<bool> create_record(std::uint64_t number, Bytes bytes);

  // A snapshot above this needs a turn of LogMemory, as does a state of twice as much.
  static constexpr std::size_t kLargeBytes = 16u << 20;
  struct Snapshot {
    LogMemory::Turn turn;  // the first: it ends after the state
    LogState state;
    std::size_t bytes = 0;
  };
  Result<Snapshot> snapshot(std::uint64_t number) const;
  // kInvalidArgument if it is too large.
  Status create_snapshot(std::uint64_t number, const LogState& state);
  // Removes what comes before the snapshot. Ends soon once `is_ending`.
  Status remove_before(std::uint64_t snapshot, const std::atomic<bool>& is_ending);

  // The error if the record is missing, and a later one is there.
  Status missing(std::uint64_t number) const;

 private:
  std::string record_name(std::uint64_t number) const;
  std::string snapshot_name(std::uint64_t number) const;
  Result<std::vector<std::byte>> snapshot_bytes(std::uint64_t number, LogMemory::Turn& turn) const;

  ObjectStore& store_;
  const std::string log_;
  LogMemory* const memory_;
  mutable std::atomic<bool> is_large_ = false;  // the last snapshot that was read
};

}  // namespace precis
