// What this machine's memory gives at best, measured in the same run and over the same cold bytes
// as the stages. The ceiling of matrix products is measured by whoever has a library for them
// (report.py).
#pragma once

#include "tests/bench/kernels/layers.h"
#include "tests/bench/kernels/timing.h"

namespace precis::bench {

// Every core reads its share of the keys of a layer and adds them up.
Seconds measure_read(const Layers& layers, unsigned threads, std::size_t runs, double seconds);
// Every core copies its share of them by memcpy.
Seconds measure_memcpy(const Layers& layers, unsigned threads, std::size_t runs, double seconds);

}  // namespace precis::bench
