// The parts of the service that requests use.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "cachesvc/base/log.h"
#include "cachesvc/pipeline/budget_applications.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/fair_turns.h"
#include "cachesvc/pipeline/get_path.h"
#include "cachesvc/pipeline/lookup.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/put_path.h"
#include "cachesvc/pipeline/session_totals.h"
#include "cachesvc/pipeline/trim.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/audit.h"
#include "cachesvc/server/event_log.h"
#include "cachesvc/server/log_limiter.h"
#include "cachesvc/server/tracer.h"

namespace precis {

namespace cluster {
class Membership;
}
class AgreedApplications;
class Backups;
class HotSegments;
class ShardKeeper;
class TenantsInForce;
class Uploads;

// All outlive the connections.
struct HandlerParts {
  EventLoop& loop;
  FairExecutor& storage;
  FairExecutor& reads;
  FairExecutor& changes;
  Catalog& catalog;
  HotTier& hot_tier;
  Projections& projections;
  PutPath& put_path;
  GetPath& get_path;
  ColdReads& cold_reads;
  TrimPath& trim_path;
  Consolidator& consolidator;
  SessionTotals& totals;
  BudgetApplications& applications;
  Lookup& lookup;
  PathHasher& paths;
  FairTurns& turns;  // for received messages
  PayloadMemory& memory;
  Admission& admission;
  TenantsInForce& in_force;
  Backups& backups;
  Metrics& metrics;
  const Clock& clock;
  Log& log;
  Audit& audit;
  EventLog& events;
  Tracer& tracer;
  LogLimiter& refused;  // limits log lines about refused requests
  BudgetDefaults configured;
  std::function<msg::ServerStatus(const std::string& tenant)> server_status;
  std::function<msg::Stats(const std::string& tenant)> server_stats;
  // OK if an answer of this size may be sent. kRejected if too much is unsent already.
  std::function<Status(const std::string& tenant, std::size_t size_bytes)> may_send;
  cluster::Membership* membership = nullptr;  // these two are null outside a cluster
  AgreedApplications* agreed_applications = nullptr;
  Uploads* uploads = nullptr;  // these two are null unless its nodes share a storage
  ShardKeeper* shards = nullptr;
  HotSegments* hot = nullptr;
};

}  // namespace precis
