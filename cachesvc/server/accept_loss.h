// Accepts, for an operator, the loss that a doubtful recovery found, while no service has the store
// open.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/base/config.h"
#include "precis/status.h"

namespace precis {

// From now on nothing counts as missing in the store in config.data_dir, and the next start frees
// the payload that was kept for the missing changes. `changes` must equal the number of missing
// changes, so that nobody accepts more than was shown. Returns a text for the operator about the
// accepted loss. kNotFound if there is no store. kInvalidArgument if nothing is missing, `changes`
// is another number, or config.audit_log cannot be opened; then nothing changes. Each call that
// opened the audit log writes a line to it.
Result<std::string> accept_loss(const Config& config, std::uint64_t changes);

}  // namespace precis
