// The interface of rows: small values in tables, by key, changed in atomic batches. Large values
// have their own interface (payload_store.h); rows name their places. joined_store.h joins the two.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

enum class Table : std::uint8_t {
  kSegments = 0,
  kPayload,  // the places of large values: one layer's records, or its output projection
  kSessions,
  kModels,
  kBudgets,
  kMeta,
  kProjections,
  kProfiles
};
inline constexpr std::size_t kTableCount = 8;

// Whether a row is the store's own, such as the version of its format. Backups omit it.
inline bool is_stores_own(std::string_view key) { return key.starts_with("store."); }

// Puts are applied before deletes.
struct RowBatch {
  struct Put {
    Table table;
    std::string key;
    Bytes value;  // borrowed until write() returns
  };
  struct Delete {
    Table table;
    std::string key;
  };
  std::vector<Put> puts;
  std::vector<Delete> deletes;
  // Set if the change reduces the stored bytes: it may then use the space that is reserved for such
  // changes. A batch with deletes may always use that space.
  bool makes_room = false;
};

struct RowStats {
  std::uint64_t disk_bytes = 0;      // files of the rows
  std::uint64_t kept_log_bytes = 0;  // logs of doubtful recoveries (kept_logs.h)
};

// When the rows were opened, they held less than was acknowledged. The store serves the rest and
// deletes no payload until accept_loss().
struct RecoveryDoubt {
  std::uint64_t lost_changes = 0;   // acknowledged but missing changes; 0 if unknown
  std::uint64_t since_unix_ms = 0;  // time of the first discovery
  bool record_lost = false;         // the record of acknowledged changes is missing or damaged
  std::string logs = {};            // for people: the place of the kept older logs, if any
  bool operator==(const RecoveryDoubt&) const = default;
};

// The rows of one instant. Must not outlive its store. Thread-safe. Calls block.
class RowSnapshot {
 public:
  virtual ~RowSnapshot() = default;
  // As in RowStore, but scan() also visits the store's own rows, whose keys begin with "store.".
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  virtual Status scan(Table table,
                      const std::function<Status(std::string_view key, Bytes value)>& row) = 0;
};

// Thread-safe. Calls block.
class RowStore {
 public:
  using VisitRow = std::function<Status(std::string_view key, Bytes value)>;

  virtual ~RowStore() = default;
  // Applies all of the batch or nothing, in this process and across a crash, and returns when the
  // batch is as durable as `durability` says. On an error nothing is changed: kOutOfSpace if the
  // disk is full, kUnavailable if the disk fails. After a crash of the process all writes at kWal
  // or better are present, but a write at kMemory before them may be missing.
  virtual Status write(const RowBatch& batch, Durability durability) = 0;
  // After OK, everything written before survives a crash of the machine.
  virtual Status harden() = 0;
  // kNotFound if absent; kCorruption if the store's own checks fail.
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  // Visits every row in key order; stops early with the first error that `row` returns. `row` may
  // use the store.
  virtual Status scan(Table table, const VisitRow& row) = 0;
  virtual Result<std::unique_ptr<RowSnapshot>> snapshot() = 0;
  virtual RowStats stats() { return {}; }
  // kUnavailable if something else deleted files of the open store. Changes then fail.
  virtual Status check() { return {}; }
  // The known loss of acknowledged changes; none if none is known.
  virtual std::optional<RecoveryDoubt> doubt() { return std::nullopt; }
  // Accepts the loss: from now on, payload without a row may be deleted.
  virtual Status accept_loss() { return {}; }
};

}  // namespace precis
