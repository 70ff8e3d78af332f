// Gives up what a doubtful recovery lost, for an operator, while no service has the store open.
#pragma once

#include <cstdint>
#include <string>

#include "precis/status.h"

namespace precis {

// From now on nothing counts as missing in the store in `data_dir`, and the next start frees the
// payload that was kept for it. `changes` must be the number that is missing, so that nobody gives
// up more than was shown. What was given up, for the operator to read. kInvalidArgument where
// nothing is missing or `changes` is another number; nothing is changed then.
Result<std::string> accept_loss(const std::string& data_dir, std::uint64_t changes);

}  // namespace precis
