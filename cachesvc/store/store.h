// The store as the catalog uses it: rows and payload, changed together in atomic batches. It is
// made of two parts, row_store.h and payload_store.h, which joined_store.h joins. The catalog
// defines the content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/store/payload_store.h"
#include "cachesvc/store/row_store.h"
#include "cachesvc/store/space_guard.h"
#include "cachesvc/store/store_snapshot.h"

namespace precis {

// Puts are applied before deletes. In Table::kPayload, a put gives the value itself, not its place.
struct StoreBatch {
  struct Put {
    Table table;
    std::string key;
    Bytes value;                                    // borrowed until write() returns
    std::shared_ptr<StagedValue> staged = nullptr;  // the staged `value`, if it was staged
  };
  std::vector<Put> puts;
  std::vector<RowBatch::Delete> deletes;
  bool makes_room = false;  // see RowBatch; also for the payload
  // For batches that write() may drop: the name of what this batch stores, and the name of what it
  // depends on. The caller chooses the names; an empty name matches nothing.
  std::string name = {};
  std::string rests_on = {};

  // The batch's changes of the storage that the nodes of a cluster share (cachesvc/shared). Stores
  // without such storage ignore them.
  struct SharedRow {
    std::uint32_t shard = 0;
    Table table;
    std::string key;
    std::optional<Bytes> value;  // as in `puts`; absent: it is deleted
  };
  struct SharedObject {
    std::uint32_t shard = 0;
    std::string key;   // of the payload value
    std::string name;  // there
    std::uint64_t size_bytes = 0;
  };
  std::vector<SharedRow> shared_rows = {};
  std::vector<SharedObject> added_objects = {}, removed_objects = {};
};

struct StoreStats {
  std::uint64_t disk_bytes = 0;     // files of the store
  std::uint64_t payload_bytes = 0;  // live payload, including staged values
  // The part of payload_bytes in files that were missing or too short at opening.
  std::uint64_t missing_bytes = 0;
  // Bytes in payload files that no row refers to. After a doubtful recovery, lost rows may own
  // them.
  std::uint64_t unclaimed_bytes = 0;
  // Completed searches for space to reclaim since the opening.
  std::uint64_t tidy_passes = 0;
  std::uint64_t kept_log_bytes = 0;  // logs of doubtful recoveries (kept_logs.h)
};

// Room on the store's disk, 0 if the store has none.
struct StoreHealth : SpaceGuard::Room {
  // kUnavailable if something else deleted files of the open store. Changes then fail.
  Status files;
  std::uint64_t min_free_bytes = 0;  // payload that would leave less free space is refused
};

// Payload values that stay readable while this object exists, even if their keys are written again
// or deleted. Must not outlive the store.
using KeptPayload = std::vector<std::unique_ptr<const PinnedValue>>;

// Thread-safe. Calls block, so they belong on the storage executor.
class Store {
 public:
  virtual ~Store() = default;
  // Starts to write a payload value before the batch that names it. Never blocks. Errors are
  // returned by the write() that names the value. If no batch does, its space is freed.
  virtual std::shared_ptr<StagedValue> stage(SharedBytes value) = 0;
  // As RowStore::write(), for rows and payload together. If a write at kWal or better depends on an
  // earlier one at kMemory, call harden() between them. A write at kMemory whose payload was all
  // staged may return before the payload is written; until then the payload is read from memory. If
  // too much payload waits, the store drops the oldest such batches together with their dependents:
  // take_dropped() returns their names.
  virtual Status write(const StoreBatch& batch, Durability durability) = 0;
  // After OK, everything written before survives a crash of the machine.
  virtual Status harden() = 0;
  // Rows, as in RowStore.
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  virtual Status scan(Table table, const RowStore::VisitRow& row) = 0;
  // A payload value: kNotFound if absent; kCorruption if its bytes are not there.
  virtual Result<std::vector<std::byte>> read(const std::string& key) = 0;
  // As read(). `into` must have the value's size; kCorruption if it differs.
  virtual Status read_into(const std::string& key, MutableBytes into) = 0;
  // [blocking] Reads an object of the storage that the nodes of a cluster share, as read_into().
  virtual Status read_shared(const std::string& name, MutableBytes) {
    return Status::not_found("no storage is shared, so '" + name + "' is not there");
  }
  // [blocking] Writes an object of that storage, and removes one: OK if it is absent.
  virtual Status write_shared(const std::string& name, Bytes) {
    return Status::internal("no storage is shared, so '" + name + "' cannot be written");
  }
  virtual Status remove_shared(const std::string&, std::uint64_t /*size_bytes*/) { return {}; }
  // [blocking if `may_wait`] Keeps the present values of these payload keys, in their order. If
  // `may_wait`, values that wait for the disk are written first. Null if one of the values is
  // absent or not yet written.
  virtual std::shared_ptr<const KeptPayload> keep(const std::vector<std::string>& keys,
                                                  bool may_wait) = 0;
  // Both do no I/O. The bytes of the payload values in the local store whose keys begin with
  // `prefix`, and of all live payload (StoreStats::payload_bytes).
  virtual std::uint64_t held_bytes(const std::string& prefix) = 0;
  virtual std::uint64_t payload_bytes() = 0;
  // [blocking] The store as it is now, with every change that was acknowledged before. Payload
  // files are not reclaimed before its values are read, unless space is short. kConflict while
  // there is another one.
  virtual Result<std::unique_ptr<StoreSnapshot>> snapshot() = 0;
  virtual StoreStats stats() = 0;
  // Names of the batches dropped since the last call.
  virtual std::vector<std::string> take_dropped() = 0;
  // The known loss of acknowledged changes; none if none is known.
  virtual std::optional<RecoveryDoubt> doubt() = 0;
  // Accepts the loss: from now on, payload without a row may be deleted.
  virtual Status accept_loss() = 0;
  virtual StoreHealth health() = 0;
};

}  // namespace precis
