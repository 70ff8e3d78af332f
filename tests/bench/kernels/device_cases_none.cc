// Replaces device_cases.cc in builds without CUDA.
#include "tests/bench/kernels/device_cases.h"

namespace precis::bench {
namespace {

Status no_cuda() { return kernels::make_cuda_backend(0).status(); }

}  // namespace

Result<std::vector<Row>> measure_device_cases(int, const Layers&, const Plan&) { return no_cuda(); }
Result<std::string> device_title(int) { return no_cuda(); }

}  // namespace precis::bench
