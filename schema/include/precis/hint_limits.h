// The fixed maxima of hints about the future of a segment (types.capnp, Hints), and of the names of
// a consolidated one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace precis::limits {

inline constexpr std::uint32_t kPriorityMax = 100, kPriorityUsual = 50;
inline constexpr std::uint64_t kHintSecondsMax = 10ull * 365 * 24 * 3600;
inline constexpr double kPrefillSecondsMax = 7 * 24 * 3600;  // of one segment
inline constexpr std::size_t kFormerIdsMax = 256;            // the newest are kept

}  // namespace precis::limits
