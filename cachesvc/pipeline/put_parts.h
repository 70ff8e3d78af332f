// The parts of the service that puts use.
#pragma once

#include <cstddef>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/prefill_rate.h"
#include "cachesvc/pipeline/projections.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/transport/transport.h"
#include "precis/kernels.h"

namespace precis {

// All must outlive the classes that use them.
struct PutParts {
  EventLoop& loop;
  Executor& compute;
  FairExecutor& storage;
  FairExecutor& reads;
  ColdReads& cold;
  PayloadMemory& memory;
  const Registration& registration;  // of the arena
  std::size_t arena_bytes;
  kernels::Backend& backend;
  Catalog& catalog;
  PathHasher& paths;
  HotTier& hot_tier;
  Projections& projections;
  PutRoom& room;
  DiskQuota& disk_quota;
  PrefillRate& prefill;
  Metrics& metrics;
  const Clock& clock;
  BudgetDefaults configured;  // the process's default recipe and keep
};

}  // namespace precis
