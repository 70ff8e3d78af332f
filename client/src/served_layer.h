// One layer of a get as it lies in the reader's memory: what the server says about it is checked
// against what was asked for before any of it is believed, then its bytes against their checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/src/get_plan.h"
#include "precis/client.h"
#include "precis/messages.h"
#include "precis/served_layout.h"
#include "precis/view.h"

namespace precis {

// Where the layer lies, one of the model's. `entries_left`: [num_links] how many entries each link
// may still serve; `buffer_bytes`: of the destination. kCorruption naming what does not fit;
// nothing is read.
Result<ServedLayout> locate_layer(const GetPlan& plan, const msg::LayerServed& served,
                                  std::span<const std::uint64_t> entries_left,
                                  std::size_t buffer_bytes);

// Checksums, seats and positions of every record cut in `layer`, located by locate_layer().
// kCorruption naming segment, layer and head.
Status verify_layer(const GetPlan& plan, const msg::LayerServed& served, const ServedLayout& layout,
                    Bytes layer);

// The heads of a verified layer. Of a link matched in part, entries past the match are squeezed out
// in place, which the last link's place at each section's end allows.
std::vector<HeadEntries> arrange_layer(const GetPlan& plan, const msg::LayerServed& served,
                                       const ServedLayout& layout, MutableBytes layer);

}  // namespace precis
