// A service's own account of how its store was recovered at its start.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/json.h"
#include "precis/client.h"

namespace precis::cli {

struct Recovery {
  bool doubtful = false;  // acknowledged changes are missing, or may be, and nobody accepted that
  std::uint64_t lost_changes = 0;    // 0 where that is not known
  std::uint64_t kept_bytes = 0;      // of payload that no row means, kept meanwhile
  std::uint64_t kept_log_bytes = 0;  // of logs from before the recovery, kept in the data directory
};

// As the service is now.
Result<Recovery> find_recovery(Client& client);
// As it was at the service's start.
Recovery recovery_of(const msg::ServerStatus& status);
// Says what is missing, and how to accept it; for a doubtful recovery.
std::string recovery_text(const Recovery& recovery);
Json to_json(const Recovery& recovery);

}  // namespace precis::cli
