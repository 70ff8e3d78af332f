// Memory of the caller's that a get leaves rows in. It is written by the caller's own calls alone,
// never by the server: so what was handed out stays when a get is tried again, nothing must be told
// to the transport, and no write can come after the caller has taken the memory back.
#pragma once

#include <cstdint>
#include <span>

#include "precis/client.h"
#include "precis/options.h"
#include "precis/status.h"

namespace precis {

// kInvalidArgument naming the first that does not fit: "out[3].keys". None at all is fine.
// `num_heads`: of a layer, those that are got.
Status check_out(const ModelSpec& model, std::uint32_t num_heads, std::span<const LayerOut> out);

// The rows of one head to the first rows of its place. kInvalidArgument where it has not so many.
Status copy_head(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
                 const LayerOut& out);

}  // namespace precis
