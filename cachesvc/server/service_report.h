// The status and the statistics of a service, as a tenant sees them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/arena.h"
#include "cachesvc/base/clock.h"
#include "cachesvc/base/config.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/server/admission.h"
#include "cachesvc/server/disk_watch.h"
#include "cachesvc/server/stored_stats.h"
#include "cachesvc/transport/transport.h"
#include "precis/kernels.h"

namespace precis {

struct SharedStorage;

class ServiceReport {
 public:
  // All outlive the report.
  struct Parts {
    const Config& config;
    const Clock& clock;
    const Metrics& metrics;
    const Admission& admission;
    const Arena& arena;
    const HotTier& hot_tier;
    const PayloadMemory& memory;
    const PutRoom& put_room;
    const DiskQuota& disk_quota;
    DiskWatch& disk_watch;
    const KnownLoss& loss;
    const Catalog& catalog;
    const kernels::Backend& backend;
    PathHasher& paths;
    const Transport& transport;
    const std::unique_ptr<cluster::Membership>& membership;  // null: no cluster
    const std::unique_ptr<SharedStorage>& shared;            // null: the node shares none
  };
  explicit ServiceReport(const Parts& parts)
      : parts_(parts), started_ns_(parts.clock.monotonic_ns()) {}

  msg::ServerStatus status(const std::string& tenant) const;
  // Returns the statistics of the process, and the catalog's statistics of the tenant.
  msg::Stats stats(const std::string& tenant) const;
  msg::Stats process_stats() const;  // without the catalog's
  // How long requests waited, by what they waited for and by tenant.
  using Waits = std::vector<std::pair<std::string, Labeled<Histogram>::Rows>>;
  Waits waits() const;
  // OK if changes can be made. kUnavailable if the disk refuses them.
  Status serves() const;
  // Logs how the service serves.
  void log_serving(Log& log, const std::string& address, std::uint64_t descriptors_max) const;

 private:
  const Parts parts_;
  const std::uint64_t started_ns_;
};

}  // namespace precis
