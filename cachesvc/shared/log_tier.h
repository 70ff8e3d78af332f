// The storage that all nodes reach (shared_tier.h), in an object store such as S3. A log
// (shard_log.h) has the marks and rows of each group of shards, another one the common rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cachesvc/base/executor.h"
#include "cachesvc/shared/object_store.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis {

struct LogTierSettings {
  std::string prefix;  // of the names of all objects: that of the cluster
  std::uint64_t snapshot_after = 128;
  // Makes snapshots and removes old records; null: the call that finds a log long does it.
  std::unique_ptr<Executor> tidier;
};

std::unique_ptr<SharedTier> make_log_tier(std::unique_ptr<ObjectStore> store,
                                          LogTierSettings settings);

}  // namespace precis
