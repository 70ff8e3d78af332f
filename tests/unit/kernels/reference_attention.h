// The attention scorers of reference.h, with every weight in memory.
#pragma once

#include "tests/unit/kernels/reference.h"

namespace precis::kernels::test {

// Scores; `second` under kThreshold, `weight` under kPreference.
ReferenceScores reference_attention(const Recipe& recipe, const LayerInput& input);

}  // namespace precis::kernels::test
