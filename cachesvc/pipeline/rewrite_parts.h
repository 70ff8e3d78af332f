// The parts that trim, split and consolidate need to replace stored segments.
#pragma once

#include "cachesvc/base/metrics.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

// All must outlive the path.
struct RewriteParts {
  EventLoop& loop;
  FairExecutor& reads;    // copies of entries
  FairExecutor& storage;  // changes of the catalog
  ColdReads& cold;
  PayloadMemory& memory;
  Catalog& catalog;
  HotTier& hot_tier;
  Metrics& metrics;
};

}  // namespace precis
