// The store interface: tables of keys and values, changed in atomic batches. Implementations
// (extent_store.h, memory_store.h) decide where values are stored; the catalog defines their
// content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "precis/status.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

// kPayload holds large values (one layer's records, or its output projection). The other tables
// hold small rows.
enum class Table : std::uint8_t {
  kSegments = 0,
  kPayload,
  kSessions,
  kModels,
  kBudgets,
  kMeta,
  kProjections,
  kProfiles
};
inline constexpr std::size_t kTableCount = 8;

// Bytes, and an owner that keeps them in memory.
struct SharedBytes {
  Bytes bytes;
  std::shared_ptr<const void> owner;
};

// A payload value whose write was started before the batch that names it. If no batch has named the
// value when its last handle ends, the store frees the value's space. Must not outlive the store.
class StagedValue {
 public:
  virtual ~StagedValue() = default;
  // [blocking] Waits until the bytes are written; an error says why they could not be.
  virtual Status wait() = 0;
};

// Puts are applied before deletes.
struct StoreBatch {
  struct Put {
    Table table;
    std::string key;
    Bytes value;                                    // borrowed until write() returns
    std::shared_ptr<StagedValue> staged = nullptr;  // the staged `value`, if it was staged
  };
  struct Delete {
    Table table;
    std::string key;
  };
  std::vector<Put> puts;
  std::vector<Delete> deletes;
  // Set if the batch reduces the stored bytes: its payload may then use the space that is reserved
  // for such changes. Rows in a batch with deletes may always use that space.
  bool makes_room = false;
  // For batches that write() may drop: the name of what this batch stores, and the name of what it
  // depends on. The caller chooses the names; an empty name matches nothing.
  std::string name = {};
  std::string rests_on = {};
};

struct StoreStats {
  std::uint64_t disk_bytes = 0;     // files of the store
  std::uint64_t payload_bytes = 0;  // live payload, as known before the next space search
  // The part of payload_bytes in files that were missing or too short at opening.
  std::uint64_t missing_bytes = 0;
  // Bytes in payload files that no row refers to. After a doubtful recovery, lost rows may own
  // them.
  std::uint64_t unclaimed_bytes = 0;
  // Completed searches for space to reclaim since the opening.
  std::uint64_t tidy_passes = 0;
  std::uint64_t kept_log_bytes = 0;  // logs of doubtful recoveries (kept_logs.h)
};

// At opening, the store held less than was acknowledged. The store serves the rest and deletes no
// payload until accept_loss().
struct RecoveryDoubt {
  std::uint64_t lost_changes = 0;   // acknowledged but missing changes; 0 if unknown
  std::uint64_t since_unix_ms = 0;  // time of the first discovery
  bool record_lost = false;         // the record of acknowledged changes is missing or damaged
  std::string logs = {};            // for people: the place of the kept older logs, if any
  bool operator==(const RecoveryDoubt&) const = default;
};

struct StoreHealth {
  // kUnavailable if something else deleted files of the open store. Changes then fail.
  Status files;
  // The store's disk; 0 if the store has none. Payload is refused if it would leave less free space
  // than `min_free_bytes`.
  std::uint64_t free_bytes = 0, total_bytes = 0, min_free_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // reserved for rows, in addition to free_bytes
  bool low = false;                 // payload is refused for lack of space (SpaceGuard::Room)
};

// Payload values that stay readable while this object exists, even if their keys are written again
// or deleted. Must not outlive the store.
class KeptPayload {
 public:
  virtual ~KeptPayload() = default;
  // [blocking] Reads the value of the `value`-th key, with the errors of Store::read_into().
  virtual Status read_into(std::size_t value, MutableBytes into) const = 0;
};

// Thread-safe. Calls block, so they belong on the storage executor.
class Store {
 public:
  virtual ~Store() = default;
  // Starts to write a payload value. Never blocks. Errors are returned by StagedValue::wait() or by
  // the write() that names the value. Null if the store does not support staging.
  virtual std::shared_ptr<StagedValue> stage(SharedBytes value) {
    static_cast<void>(value);
    return nullptr;
  }
  // Applies all of the batch or nothing, in this process and across a crash, and returns when the
  // batch is as durable as `durability` says. On an error nothing is changed: kOutOfSpace if the
  // disk is full, kUnavailable if the disk fails. After a crash of the process all writes at kWal
  // or better are present, but a write at kMemory before them may be missing: if the later write
  // depends on the earlier one, call harden() between them. A write at kMemory whose payload was
  // all staged may return before the payload is written; it is then read from memory. If too much
  // payload waits, the store drops the oldest such batches together with their dependents:
  // take_dropped() returns their names.
  virtual Status write(const StoreBatch& batch, Durability durability) = 0;
  // After OK, everything written before survives a crash of the machine.
  virtual Status harden() = 0;
  // kNotFound if absent; kCorruption if the store's own checks fail.
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  // Copies the value into `into`, whose size must equal the value's; kCorruption if it differs.
  virtual Status read_into(Table table, const std::string& key, MutableBytes into) = 0;
  // [blocking if `may_wait`] Keeps the present values of these payload keys readable. If
  // `may_wait`, values that wait for the disk are written first. Null if one of the values is
  // absent or not yet written.
  virtual std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                                  bool may_wait) {
    static_cast<void>(keys);
    static_cast<void>(may_wait);
    return nullptr;
  }
  // Visits every row in key order; stops early with the first error that `row` returns.
  virtual Status scan(Table table,
                      const std::function<Status(std::string_view key, Bytes value)>& row) = 0;
  virtual StoreStats stats() = 0;
  // Names of the batches dropped since the last call.
  virtual std::vector<std::string> take_dropped() { return {}; }
  // The known loss of acknowledged changes; none if none is known.
  virtual std::optional<RecoveryDoubt> doubt() { return std::nullopt; }
  // Accepts the loss: from now on, payload without a row may be deleted.
  virtual Status accept_loss() { return {}; }
  virtual StoreHealth health() { return {}; }
};

}  // namespace precis
