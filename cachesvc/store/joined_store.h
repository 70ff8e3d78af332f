// Joins rows and payload into one store. A commit to both has four steps:
// 1. The payload store stages the values, most of them before the batch that names them.
// 2. The batch waits for its values; at kFsync the payload store syncs them.
// 3. One batch of the row store holds the caller's rows and the place of each value. This is the
//    commit.
// 4. The values are found by key from now on, and the values that they replace are freed.
//
// A deleted value is freed after its row. Freed space is reused only after harden_rows(). A crash
// before step 3 leaves values that no row names: at opening, the rows say which values are live,
// and the payload store reclaims the rest. After a doubtful recovery the rest is not reclaimed
// until the loss is accepted, because lost rows may have named it. Deferred batches
// (write_behind.h) take steps 2 to 4 on the payload store's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/store/payload_store.h"
#include "cachesvc/store/space_guard.h"
#include "cachesvc/store/store.h"

namespace precis {

// Opens a payload store in which only the values at the places `live` count.
using OpenPayload =
    std::function<Result<std::unique_ptr<PayloadStore>>(std::span<const Extent> live)>;

// The searches for reclaimable space.
struct Compaction {
  std::unique_ptr<Executor> thread;  // one thread
  const Clock& clock;                // outlives the store
  std::chrono::milliseconds after;   // delay from a removal to a search
};

// Nothing else may write to `rows`. At most `write_behind_bytes` of payload are acknowledged before
// they are written. `guard` may be null; it watches the disk of both.
Result<std::unique_ptr<Store>> join_store(std::unique_ptr<RowStore> rows, const OpenPayload& open,
                                          std::uint64_t write_behind_bytes, Compaction compaction,
                                          std::shared_ptr<SpaceGuard> guard = nullptr);

}  // namespace precis
