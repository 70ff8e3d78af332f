// A request trace: JSON lines, one request each, in the order of arrival.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis::bench {

struct TraceRequest {
  double seconds = 0;                 // since the trace began; 0 if the line has no 'timestamp'
  std::vector<std::uint64_t> blocks;  // ids of the blocks of its prompt
};

// Reads 'hash_ids' and, if present, 'timestamp' (ms) of every line. kNotFound if the file cannot be
// read; kInvalidArgument names the line that is wrong.
Result<std::vector<TraceRequest>> read_trace(const std::string& path);

}  // namespace precis::bench
