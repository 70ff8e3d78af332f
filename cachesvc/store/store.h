// The store seam: tables of keys and values, changed in atomic batches. What lies where is the
// implementation's matter (extent_store.h, memory_store.h); the catalog knows what is in them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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

// Puts are applied before deletes.
struct StoreBatch {
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
};

struct StoreStats {
  std::uint64_t disk_bytes = 0;     // files of the store
  std::uint64_t payload_bytes = 0;  // live payload, as far as the store knows before it tidies up
};

// Thread-safe; calls block and belong on the storage executor.
class Store {
 public:
  virtual ~Store() = default;
  // All or nothing, in this process and across a crash; acknowledged as `durability` says.
  // kOutOfSpace when the disk is full, kUnavailable when it fails; nothing is changed then. After a
  // crash every write at kWal or better is there in its order, but a write at kMemory before it may
  // be missing: harden() first if the one rests on the other.
  virtual Status write(const StoreBatch& batch, Durability durability) = 0;
  // When it returns OK, all that was written before survives a crash of the machine.
  virtual Status harden() = 0;
  // kNotFound if absent; kCorruption if the store's own checks fail.
  virtual Result<std::vector<std::byte>> get(Table table, const std::string& key) = 0;
  // The value's bytes into `into`, whose size must be the value's; kCorruption if it is not.
  virtual Status read_into(Table table, const std::string& key, MutableBytes into) = 0;
  // Every row in key order; stops early with the Status that `row` returns.
  virtual Status scan(Table table,
                      const std::function<Status(std::string_view key, Bytes value)>& row) = 0;
  virtual StoreStats stats() = 0;
};

}  // namespace precis
