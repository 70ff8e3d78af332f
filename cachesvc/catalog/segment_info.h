// Describes a segment to clients.
#pragma once

#include <cstddef>

#include "cachesvc/catalog/segment_node.h"
#include "precis/messages.h"

namespace precis {

// `children`: the number of segments that continue it.
msg::SegmentInfo segment_info(const SegmentNode& node, std::size_t children, bool with_plan);

}  // namespace precis
