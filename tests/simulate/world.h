// A model of what the service promises, and clients that act at random and compare what they see
// with the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/random_kv.h"
#include "tests/simulate/service_host.h"

namespace precis::simulate {

struct Plot {
  std::uint64_t seed = 0;
  std::uint32_t clients = 4;
  std::uint32_t operations = 40;  // of each client
  bool crashes = true;
  bool faults = true;  // full disks and failing writes
  // Above 0, the service trims and drops what is not pinned.
  std::uint64_t max_disk_bytes = 0;
  std::string folder;  // an existing, empty folder
  bool trace = false;  // print every operation
};

struct Outcome {
  Status status;  // kInternal: the first broken promise
  std::uint64_t steps = 0, operations = 0, failed = 0, crashes = 0;
  std::uint64_t consolidations = 0;  // since the last start
  double simulated_seconds = 0;
};

// Runs the plot to its end or to the first broken promise. The same plot has the same outcome.
Outcome play(const Plot& plot);

}  // namespace precis::simulate
