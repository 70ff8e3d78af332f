// The storage that the nodes of a cluster share: the connection to it, and the copying to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/handler_parts.h"
#include "cachesvc/server/shard_keeper.h"
#include "cachesvc/server/snapshot_problems.h"
#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/shared/uploads.h"

namespace precis {

struct SharedStorage {
  SharedStorage(Log& log, const Clock& clock) : problems(log, clock) {}

  SnapshotProblems problems;  // the tier uses it
  std::unique_ptr<SharedTier> tier;
  std::unique_ptr<Uploads> uploads;
  std::atomic<std::uint64_t> orphans_removed = 0;  // objects (orphan_sweeps.h)

  // Null if the configuration has none. At most about `bytes_max` wait to be copied, and rows of
  // logs in S3 take at most a quarter of that in memory. Errors as
  // connect_rados() or connect_s3(), or kInvalidArgument without a cluster.
  static Result<std::unique_ptr<SharedStorage>> connect(const Config& config, Runtime& runtime,
                                                        Log& log, std::uint64_t bytes_max);
  // A store that makes changes in `local` and copies them to the shared storage.
  std::unique_ptr<Store> behind(std::unique_ptr<Store> local) const;
  // Starts to take the shards that the node owns, and lets the requests know. An error is the local
  // store's.
  Result<std::unique_ptr<ShardKeeper>> keep_shards(const Config& config, Store& store,
                                                   Runtime& runtime, HandlerParts& parts) const;
};

}  // namespace precis
