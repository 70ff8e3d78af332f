// The best rates of this machine, measured in the same run: memory over the same cold bytes as the
// stages, vector and tile units over data that stays in cache. report.py measures the ceiling of
// large matrix products, because it has a library for them.
#pragma once

#include <vector>

#include "tests/bench/kernels/cases.h"

namespace precis::bench {

// All cores at once, each ceiling a row of kind "ceiling":
//   read        the keys of a layer, added up
//   read twice  each head's keys, and then the same again backwards, in keydiff's order, but
//               without waiting for a head's last reader
//   memcpy      the keys of a layer, copied
//   exps        powers of two of f32 in cache, as window attention computes from its logits
//   tiles       bf16 products 32 x 32 x 128 in cache by the tile unit, if there is one
std::vector<Row> measure_ceilings(const Layers& layers, const Plan& plan);

}  // namespace precis::bench
