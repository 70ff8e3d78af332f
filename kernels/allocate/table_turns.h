// Seats by a profile's table (policies.md, "The joining order": LU-KV and HeadKV tables).
#pragma once

#include <cstdint>
#include <vector>

#include "precis/profile.h"

namespace precis::kernels {

// Who takes each of the first `seats` ranked seats, as layer * num_kv_heads + head, where every
// head holds `protected_count` entries already and has `num_tokens`.
//   curves   a head keeps, at a kept fraction, what its curve says; its k-th entry, protected ones
//            included, joins at the fraction where the curve reaches k
//   weights  highest averages over the ranked entries
std::vector<std::uint32_t> table_turns(const Profile& profile, std::uint32_t protected_count,
                                       std::uint32_t num_tokens, std::uint64_t seats);

}  // namespace precis::kernels
