// Stage encode: a layer's head records (record_format.h), with compact run into their sections.
// Rows that no stage before had to read are checked here, on their way.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Whether the values of keys and values were looked at before. kUnchecked: a NaN or an infinity in
// any of them is the error of check_rows_cpu(), and what `out` holds then is of no use.
enum class Rows { kChecked, kUnchecked };

// `out`: encoded_bytes(counts, ...), at a multiple of 4 bytes. Every byte of it is written, padding
// included, so that equal inputs give equal bytes. Where `seats` is empty, seats and checksums are
// left zero for place_seats() or place_cut_seats(), and seal_cpu(). kInvalidArgument if `out` has
// another size.
Status encode_cpu(const CpuContext& context, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::span<const std::uint32_t> counts,
                  const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                  MutableBytes out, Rows rows = Rows::kChecked);

// kInvalidArgument if `out` is not what encode asks for.
Status check_room(const LayerInput& input, std::span<const std::uint32_t> counts, MutableBytes out);

// The checksums of every record of these layers. kCorruption where they are none.
Status seal_cpu(const CpuContext& context, std::span<const MutableBytes> layers);

}  // namespace precis::kernels
