// Recomputes checksums. A mutated record fails its first checksum, so targets also try it with
// correct checksums.
#pragma once

#include <cstddef>

#include "client/src/get_plan.h"
#include "precis/messages.h"
#include "precis/served_layout.h"
#include "precis/view.h"

namespace precis::fuzz {

// Writes the checksums that match the current content of the record at the front of `bytes`.
// Returns the record's length, or 0 if its header is invalid in another way.
std::size_t mend_record(MutableBytes bytes);

// As mend_record() for a served layer: checksums of whole blocks are in the layer, those of partial
// blocks in the message.
void mend_served(const GetPlan& plan, msg::LayerServed& served, const ServedLayout& layout,
                 MutableBytes layer);

}  // namespace precis::fuzz
