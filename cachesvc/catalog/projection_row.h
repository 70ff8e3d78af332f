// Checks of the rows of output projections. Private to the service.
#pragma once

#include <cstddef>

#include "precis/catalog_row.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// The Gram matrices of one layer, [num_q_heads, head_dim, head_dim] of f32.
std::size_t grams_bytes(const ModelSpec& model);

// kInvalidArgument unless the layer is one of the model's, and the parts have the sizes that follow
// from its shape.
Status check_projection_row(const StoredProjection& row, const ModelSpec& model);

}  // namespace precis
