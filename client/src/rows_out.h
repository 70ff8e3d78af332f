// The caller's memory that a get writes rows to. Only the caller's own calls write it, never the
// server: so handed-out rows survive a retry of the get, the memory needs no registration, and no
// write can come after the caller has taken the memory back.
#pragma once

#include <cstdint>
#include <span>

#include "precis/client.h"
#include "precis/options.h"
#include "precis/status.h"

namespace precis {

// kInvalidArgument naming the first destination that does not fit: "out[3].keys". An empty `out` is
// OK. `num_heads`: of a layer, in this get.
Status check_out(const ModelSpec& model, std::uint32_t num_heads, std::span<const LayerOut> out);

// Copies the rows of one head to the start of its place. kInvalidArgument if the place is too
// small.
Status copy_head(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
                 const LayerOut& out);

}  // namespace precis
