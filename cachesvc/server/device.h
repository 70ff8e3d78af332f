// The device that compresses layers.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "precis/kernels.h"

namespace precis {

// Chooses by config.device: a GPU if there is one and no other device is requested. `memory` holds
// the layers. `log` must outlive the backend, and receives the reason if the CPU is used instead.
// kUnsupported or kUnavailable if a GPU requested by number is not available.
Result<std::unique_ptr<kernels::Backend>> choose_backend(const Config& config, MutableBytes memory,
                                                         Log& log);

}  // namespace precis
