// A layer's probe in the form that the kernels use.
#pragma once

#include <vector>

#include "precis/kernels.h"

namespace precis::kernels {

// input.probe, [num_kv_heads, ProbeRows::count()], with anchors of length 1 (or 0). Anchors and key
// coefficients are rotated as RoPE rotates a key at input.begin, so that keys have to be rotated
// back to the segment's first token only.
std::vector<float> turned_probe(const LayerInput& input);

}  // namespace precis::kernels
