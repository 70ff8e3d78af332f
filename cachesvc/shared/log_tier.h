// The storage that all nodes reach (shared_tier.h), in an object store such as S3. A log
// (shard_log.h) has the marks and rows of each group of shards, another one the common rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/executor.h"
#include "cachesvc/shared/object_store.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis {

struct LogTierSettings {
  std::string prefix = {};  // begins the names of all objects; names the cluster
  std::uint64_t snapshot_after = 128;
  // The most memory that the rows of all groups take between reads, about. Rows that were read
  // least recently are read from the storage again.
  std::size_t rows_bytes_max = 64u << 20;
  std::size_t records_bytes_max = 1u << 18;  // of each group's last records, in memory
  // Makes snapshots and removes old records; null: the call that finds a long log does it.
  std::unique_ptr<Executor> tidier = {};
  // Called after each such try, on its thread, with the log and the error. A later record leads to
  // another try.
  std::function<void(const std::string& log, const Status& status)> tidied = {};
};

std::unique_ptr<SharedTier> make_log_tier(std::unique_ptr<ObjectStore> store,
                                          LogTierSettings settings);

}  // namespace precis
