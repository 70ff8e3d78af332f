// One layer of a get in the reader's memory. The client checks the server's message against the
// request, then the layer's bytes against their checksums.
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

// Returns the places of the layer's sections. `served.layer` must be a layer of the model.
// `entries_left`: [num_links] how many entries each link may still serve; `buffer_bytes`: the size
// of the destination. kCorruption naming the field that does not fit. The layer's bytes are not
// read.
Result<ServedLayout> locate_layer(const GetPlan& plan, const msg::LayerServed& served,
                                  std::span<const std::uint64_t> entries_left,
                                  std::size_t buffer_bytes);

// Checks checksums, seats and positions of every record cut in `layer`, located by locate_layer().
// kCorruption naming segment, layer and head.
Status verify_layer(const GetPlan& plan, const msg::LayerServed& served, const ServedLayout& layout,
                    Bytes layer);

// The bytes of a layer's decoded rows; 0 if no link has coded rows.
std::size_t decoded_bytes(const GetPlan& plan, const ServedLayout& layout);

// The heads of a verified layer. `decoded`: decoded_bytes(), for the rows if some are coded. If the
// last link matched in part, its entries after the match are removed in place, which is possible
// because the last link is at the end of each section.
std::vector<HeadEntries> arrange_layer(const GetPlan& plan, const msg::LayerServed& served,
                                       const ServedLayout& layout, MutableBytes layer,
                                       MutableBytes decoded);

}  // namespace precis
