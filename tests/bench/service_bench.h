// Hot get and put through a real precisd, one client, beside the ceiling of the transport.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/bench/row.h"

namespace precis::bench {

struct ServiceBenchOptions {
  std::string transport;  // "shm" or "tcp"
  std::size_t bytes = 0;  // of K and V per put
  std::size_t runs = 0;   // counted, after one that is not
  std::function<void(const std::string& what)> progress;
};

// Rows put_ingest (bytes taken in, until the last layer() returned), put (until the commit at
// `memory` durability was acknowledged, compression and store included) and get_hot (until the
// reader has checked the last layer). The recipe keeps everything and scores by position, so that
// what is measured is the data plane. Every get is compared with what was put.
Result<std::vector<Row>> bench_service(const ServiceBenchOptions& options);

}  // namespace precis::bench
