// Mutated records fail a checksum at once, so targets also try them with the checksums mended.
#pragma once

#include <cstddef>

#include "client/src/get_plan.h"
#include "precis/messages.h"
#include "precis/served_layout.h"
#include "precis/view.h"

namespace precis::fuzz {

// Writes the checksums of what the record at the front of `bytes` is now, and says how long it is;
// 0 where its header is wrong in other ways.
std::size_t mend_record(MutableBytes bytes);

// The same of a layer as it is served: of its whole blocks there, of its tails in the message.
void mend_served(const GetPlan& plan, msg::LayerServed& served, const ServedLayout& layout,
                 MutableBytes layer);

}  // namespace precis::fuzz
