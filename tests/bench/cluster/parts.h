// The parts of ./dev bench cluster.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis::bench {

struct ClusterOptions {
  std::uint32_t prompts = 384, runs = 5;
  double seconds = 3;
};

struct Part {
  struct Line {
    std::string figure, value;
  };
  std::vector<Line> lines;      // for people
  nlohmann::ordered_json json;  // the same, and more
  std::string warning = {};     // a figure that calls for a decision
};

// How much more three nodes serve than one, if their prompts differ.
Result<Part> measure_spread(const ClusterOptions& options);

// `ceph_settings`: lines of a node's configuration that name a Ceph.
// How much more a node and its further nodes serve of one prefix than a node alone.
Result<Part> measure_hot_prefix(const ClusterOptions& options, const std::string& ceph_settings);
// How fast a node serves what another one stored: at the first get, and at later ones.
Result<Part> measure_second_get(const ClusterOptions& options, const std::string& ceph_settings);

}  // namespace precis::bench
