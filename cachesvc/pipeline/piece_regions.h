// The client memory that a pushed piece names.
#pragma once

#include <cstdint>

#include "precis/messages.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// kInvalidArgument unless each region of a piece of layer `layer` holds the bytes that the piece
// needs. Requires a piece whose shape was checked.
Status check_regions(const ModelSpec& model, std::uint32_t layer, const msg::PushLayer& piece);

}  // namespace precis
