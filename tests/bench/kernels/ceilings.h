// What this machine gives at best, measured in the same run: its memory over the same cold bytes as
// the stages, its vector and tile units over what stays in cache. The ceiling of large matrix
// products is measured by whoever has a library for them (report.py).
#pragma once

#include <vector>

#include "tests/bench/kernels/cases.h"

namespace precis::bench {

// All cores at once, each ceiling a row of kind "ceiling":
//   read        the keys of a layer, added up
//   read twice  each head's keys, and then the same again backwards, as keydiff walks them, but
//               without waiting for a head's last reader
//   memcpy      the keys of a layer, copied
//   exps        powers of two of f32 in cache, as window attention takes them of its logits
//   tiles       bf16 products 32 x 32 x 128 in cache by the tile unit, where there is one
std::vector<Row> measure_ceilings(const Layers& layers, const Plan& plan);

}  // namespace precis::bench
