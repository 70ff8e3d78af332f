// Stage encode: a layer's head records (record_format.h), with compact run into their sections.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// scores: [num_kv_heads, n]. `out`: encoded_bytes(plan.counts(), ...), at a multiple of 4 bytes.
// Every byte of it is written, padding included, so that equal inputs give equal bytes. Where
// plan.seats is empty, seats and checksums are left zero for place_cut_seats. kInvalidArgument if
// `out` has another size.
Status encode_cpu(const CpuContext& context, const LayerInput& input, std::span<const float> scores,
                  const LayerPlan& plan, const SegmentId& segment, MutableBytes out);

}  // namespace precis::kernels
