// The service's report on the recovery of its store at its start.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/json.h"
#include "precis/messages.h"

namespace precis::cli {

struct Recovery {
  bool doubtful = false;             // acknowledged changes are or may be missing, not yet accepted
  std::uint64_t lost_changes = 0;    // 0 if unknown
  std::uint64_t kept_bytes = 0;      // payload that no row refers to, kept for now
  std::uint64_t kept_log_bytes = 0;  // logs from before the recovery, kept in the data directory
};

// The state in the service's status.
Recovery recovery_of(const msg::ServerStatus& status);
// For a doubtful recovery: says what is missing, and how to accept the loss.
std::string recovery_text(const Recovery& recovery);
Json to_json(const Recovery& recovery);

}  // namespace precis::cli
