// The caller's memory that a get writes rows to. Only calls of the caller write to it, never the
// server. So a retry of the get does not change rows that were handed out, the memory needs no
// registration, and nothing writes to it after the last call.
#pragma once

#include <cstdint>
#include <span>

#include "precis/client.h"
#include "precis/options.h"
#include "precis/status.h"

namespace precis {

// kInvalidArgument naming the first destination that does not fit: "out[3].keys". An empty `out` is
// OK. `num_heads`: the heads of each layer that this get reads.
Status check_out(const ModelSpec& model, std::uint32_t num_heads, std::span<const LayerOut> out);

// Copies the rows of one head to the start of its part of `out`. kInvalidArgument if that part has
// fewer rows.
Status copy_head(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
                 const LayerOut& out);

}  // namespace precis
