// Gives up what a doubtful recovery lost, for an operator, while no service has the store open.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/base/config.h"
#include "precis/status.h"

namespace precis {

// From now on nothing counts as missing in the store in config.data_dir, and the next start frees
// the payload that was kept for it. `changes` must be the number that is missing, so that nobody
// gives up more than was shown. Returns what was given up, for the operator to read.
// kInvalidArgument where nothing is missing, `changes` is another number or config.audit_log can't
// be opened; nothing is changed then. The audit log has a line for each call that opened it.
Result<std::string> accept_loss(const Config& config, std::uint64_t changes);

}  // namespace precis
