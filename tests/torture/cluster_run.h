// ./dev torture --cluster: clients of a cluster with faults (cluster_faults.h). A client must read
// the bytes that it put, and may see no errors but those that a client of a cluster must expect.
// If the nodes share a storage, all that was acknowledged must be there: no put is lost, no session
// goes back, nothing that was removed comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "precis/status.h"
#include "tests/torture/cluster_faults.h"

namespace precis::torture {

struct ClusterOptions {
  double minutes = 1;
  std::uint32_t kills = 0;  // of nodes, and no other faults; 0: all faults, for `minutes`
  Storage storage = Storage::kNothing;
  std::uint32_t seed = 0;
  std::function<void(double done, const std::string& note)> progress;
  std::function<void(const std::string& what)> tell;  // what is done next, so that a log shows it
};

struct ClusterCounts {
  std::vector<std::pair<std::string, std::uint64_t>> faults;  // how many of each kind
  std::uint64_t acknowledged = 0;                             // puts
  std::uint64_t reads = 0;
  std::uint64_t removed = 0, turns = 0;  // segments and turns of sessions, acknowledged
  std::uint64_t misses = 0;  // of what was acknowledged; with a shared storage there may be none
  std::uint64_t errors = 0;  // that a client must expect
  std::uint64_t errors_undocumented = 0;
  // The longest time without a success of a client, from a kill of a node to the end of that fault:
  // the 99th percentile over clients and kills.
  double pause_p99_seconds = 0;
};

// Returns the first failure. `counts` is filled in any case.
Status torture_cluster(const ClusterOptions& options, ClusterCounts& counts);

}  // namespace precis::torture
