// Stage check: validates all pushed input before any other stage reads it.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// kInvalidArgument, naming layer, tensor and value: a wrong shape, dtype or alignment; a NaN or an
// infinity in keys, values, queries, lse or query statistics (the first one, by head and token); an
// input that the recipe needs and that was not pushed; recipe parameters that no stage supports.
// NaN in `scores` is allowed, because it ranks last. For the output projection only the dimensions
// are checked. Reads every other element once.
Status check_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input);
// Checks everything except the elements of keys and values, for callers that check those while they
// read the rows.
Status check_but_rows_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input);
// Checks the elements of keys and values.
Status check_rows_cpu(const CpuContext& context, const LayerInput& input);

}  // namespace precis::kernels
