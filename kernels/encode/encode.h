// Stage encode: writes a layer's head records (record_format.h); compact fills their sections. Rows
// that no earlier stage had to read are checked here, while they are copied.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Whether the values of keys and values were checked before. kUnchecked: if any of them is a NaN or
// an infinity, encode_cpu() returns the error of check_rows_cpu(), and the content of `out` is
// undefined.
enum class Rows { kChecked, kUnchecked };

// `out`: encoded_bytes(counts, ...) long, aligned to 4 bytes. Every byte of it is written, padding
// included, so that equal inputs give equal bytes. If `seats` is empty, seats and checksums are
// left zero for place_seats() or place_cut_seats(), and seal_cpu(). kInvalidArgument if `out` has
// another size or alignment, or the rows cannot have the encoding.
Status encode_cpu(const CpuContext& context, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::span<const std::uint32_t> counts,
                  const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                  MutableBytes out, Encoding encoding, Rows rows = Rows::kChecked);

// The refusal of a layer whose coded rows would not be finite after they are decoded.
Status too_large_for(Encoding encoding, std::uint32_t layer);

// kInvalidArgument as encode_cpu() says.
Status check_room(const LayerInput& input, Encoding encoding, std::span<const std::uint32_t> counts,
                  MutableBytes out);

// Writes the checksums of every record of these layers. kCorruption if a layer does not hold
// records.
Status seal_cpu(const CpuContext& context, std::span<const MutableBytes> layers);

}  // namespace precis::kernels
