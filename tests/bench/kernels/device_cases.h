// The stages on a CUDA device, over layers that lie there already: what a copy from the host takes
// is the bus's and not the stages'.
#pragma once

#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/bench/kernels/cases.h"

namespace precis::bench {

// Every case of one device, seconds a layer. A run enqueues its stage for as many layers as the
// model has, or as the device's memory holds, and waits once. Ceilings of the device come first.
// kUnsupported where the build has no CUDA or the machine no such device.
Result<std::vector<Row>> measure_device_cases(int ordinal, const Layers& layers, const Plan& plan);
// "cuda:0 (NVIDIA H200)"
Result<std::string> device_title(int ordinal);

}  // namespace precis::bench
