// A plan as a table, and as a map of layers and heads. A darker cell keeps a larger share of its
// head's tokens.
#pragma once

#include <cstddef>
#include <string>

#include "precis/types.h"

namespace precis::cli {

// The entries of each head, and of ALL heads of a layer. Heads that do not fit into `columns` are
// left out, the last ones first. 0: any width.
std::string plan_text(const Plan& plan, std::size_t columns);

// One row per layer, one character pair per KV head. `tokens`: of the segment. `columns`: the
// widest line; heads that do not fit are left out, and a line says how many. 0: any.
std::string heatmap_text(const Plan& plan, std::uint32_t tokens, std::size_t columns);

// The same as a PNG: one square per layer and head, with numbers of layers and heads, and a scale.
// All heads are shown. The size grows with the model: 10 x 10 pixels a square.
std::string heatmap_png(const Plan& plan, std::uint32_t tokens);

}  // namespace precis::cli
