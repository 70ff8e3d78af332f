// Stage check: everything pushed from outside, before any other stage touches it.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// kInvalidArgument naming layer, tensor and value: a shape, dtype or alignment that does not fit, a
// NaN or an infinity in keys, values, queries, lse or query statistics (the first one, by head and
// token), inputs the recipe needs and nobody pushed, recipe parameters no stage can work with. NaN
// in `scores` is fine: it ranks last; of the output projection the dimensions alone are looked at.
// Reads every other element once.
Status check_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input);
// All of it but the elements of keys and values, for who looks at those on their way.
Status check_but_rows_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input);
// The rest.
Status check_rows_cpu(const CpuContext& context, const LayerInput& input);

}  // namespace precis::kernels
