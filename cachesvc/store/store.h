// The store seam: tables of keys and values, changed in atomic batches. What lies where is the
// implementation's matter (extent_store.h, memory_store.h); the catalog knows what is in them.
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

// kPayload holds large values (one layer's records, or its output projection); all others hold
// small rows.
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

// Bytes and what keeps them in place.
struct SharedBytes {
  Bytes bytes;
  std::shared_ptr<const void> owner;
};

// A payload value on its way to where it is kept, ahead of the batch that names it. If none has
// named it by its last handle's end it is given up, and its room with it. Not for longer than the
// store.
class StagedValue {
 public:
  virtual ~StagedValue() = default;
  // [blocking] Until the bytes are written; why they could not be.
  virtual Status wait() = 0;
};

// Puts are applied before deletes.
struct StoreBatch {
  struct Put {
    Table table;
    std::string key;
    Bytes value;                                    // borrowed until write() returns
    std::shared_ptr<StagedValue> staged = nullptr;  // of `value`, if it was staged
  };
  struct Delete {
    Table table;
    std::string key;
  };
  std::vector<Put> puts;
  std::vector<Delete> deletes;
  // Less is stored after it, so its payload may use the room that is kept free for such changes.
  // Rows that come with deletes may use it in any case.
  bool makes_room = false;
  // For batches that may give way (write()): what this one stores, and what it means nothing
  // without. Names are the caller's; empty ones name nothing.
  std::string name = {};
  std::string rests_on = {};
};

struct StoreStats {
  std::uint64_t disk_bytes = 0;     // files of the store
  std::uint64_t payload_bytes = 0;  // live payload, as far as the store knows before it tidies up
  // Of payload_bytes: what files that are gone or short had, when the store was opened.
  std::uint64_t missing_bytes = 0;
  // In payload files beside what rows mean. After a doubtful recovery this may be of lost rows.
  std::uint64_t unclaimed_bytes = 0;
  // Searches for space to give back that have ended since the opening.
  std::uint64_t tidy_passes = 0;
  std::uint64_t kept_log_bytes = 0;  // logs of doubtful recoveries (kept_logs.h), at the opening
};

// Opening found less than was acknowledged. What is left is served, and no payload is deleted until
// accept_loss().
struct RecoveryDoubt {
  std::uint64_t lost_changes = 0;   // acknowledged, and not there; 0 where that is not known
  std::uint64_t since_unix_ms = 0;  // found for the first time
  bool record_lost = false;         // the file that says what was acknowledged is lost, or damaged
  std::string logs = {};            // for people: where the logs from before are, if anywhere
  bool operator==(const RecoveryDoubt&) const = default;
};

struct StoreHealth {
  // kUnavailable where somebody else has deleted files of the store while it was open; changes
  // fail then.
  Status files;
  // Its disk; 0 where it has none. Payload that would leave less free than `min_free_bytes` is
  // refused.
  std::uint64_t free_bytes = 0, total_bytes = 0, min_free_bytes = 0;
  std::uint64_t reserve_bytes = 0;  // that are kept for rows, beside what is free
  bool low = false;                 // payload is refused for want of space (SpaceGuard::Room)
};

// Payload values that stay readable while this lives, whatever is written under their keys. Not for
// longer than the store.
class KeptPayload {
 public:
  virtual ~KeptPayload() = default;
  // [blocking] As Store::read_into(), of the `value`-th of the keys.
  virtual Status read_into(std::size_t value, MutableBytes into) const = 0;
};

// Thread-safe; calls block and belong on the storage executor.
class Store {
 public:
  virtual ~Store() = default;
  // Begins to write a payload value. Never blocks; what goes wrong is told to who waits for it, or
  // by the write() that names it. Null where a store has no use for it.
  virtual std::shared_ptr<StagedValue> stage(SharedBytes value) {
    static_cast<void>(value);
    return nullptr;
  }
  // All or nothing, in this process and across a crash; acknowledged as `durability` says.
  // kOutOfSpace when the disk is full, kUnavailable when it fails; nothing is changed then. After a
  // crash every write at kWal or better is there in its order, but a write at kMemory before it may
  // be missing: harden() first if the one rests on the other. A write at kMemory all of whose
  // payload was staged need not wait for it: it is read from memory until it is written. Where too
  // much waits so, the oldest such batches whose payload is not written give way, with those that
  // rest on them: they are gone, and take_dropped() says so.
  virtual Status write(const StoreBatch& batch, Durability durability) = 0;
  // When it returns OK, all that was written before survives a crash of the machine.
  virtual Status harden() = 0;
  // kNotFound if absent; kCorruption if the store's own checks fail.
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  // The value's bytes into `into`, whose size must be the value's; kCorruption if it is not.
  virtual Status read_into(Table table, const std::string& key, MutableBytes into) = 0;
  // [blocking, where it `may_wait`] What lies under these payload keys now. Values that wait for
  // the disk are written first, if it may wait. Null where one of them is not there, or not
  // written.
  virtual std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                                  bool may_wait) {
    static_cast<void>(keys);
    static_cast<void>(may_wait);
    return nullptr;
  }
  // Every row in key order; stops early with the Status that `row` returns.
  virtual Status scan(Table table,
                      const std::function<Status(std::string_view key, Bytes value)>& row) = 0;
  virtual StoreStats stats() = 0;
  // Names of batches that gave way since it was last asked.
  virtual std::vector<std::string> take_dropped() { return {}; }
  // None: nothing that was acknowledged is known to be missing.
  virtual std::optional<RecoveryDoubt> doubt() { return std::nullopt; }
  // Gives up what is missing: payload that no row means may be deleted from now on.
  virtual Status accept_loss() { return {}; }
  virtual StoreHealth health() { return {}; }
};

}  // namespace precis
