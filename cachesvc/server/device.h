// The device that layers are compressed on.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "precis/kernels.h"

namespace precis {

// As config.device says: a GPU where there is one and nothing else was asked for. `memory` is what
// layers lie in; `log` outlives the backend, and gets the reason where the CPU has to do.
// kUnsupported or kUnavailable where a GPU was asked for by number and can't be had.
Result<std::unique_ptr<kernels::Backend>> choose_backend(const Config& config, MutableBytes memory,
                                                         Log& log);

}  // namespace precis
