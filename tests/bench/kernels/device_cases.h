// The stages on a CUDA device, over layers that are already there, because the time of a copy from
// the host depends on the bus and not on the stages.
#pragma once

#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/bench/kernels/cases.h"

namespace precis::bench {

// Every case on one device, in seconds a layer. A run enqueues its stage for as many layers as the
// model has, or as the device's memory holds, and waits once. Ceilings of the device come first.
// kUnsupported if the build has no CUDA or the machine has no such device.
Result<std::vector<Row>> measure_device_cases(int ordinal, const Layers& layers, const Plan& plan);
// "cuda:0 (NVIDIA H200)"
Result<std::string> device_title(int ordinal);

}  // namespace precis::bench
