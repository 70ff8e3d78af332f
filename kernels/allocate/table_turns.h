// Seats by a profile's table, of LU-KV or HeadKV (policies/budgets.md, "Profiles").
#pragma once

#include <cstdint>
#include <vector>

#include "precis/profile.h"

namespace precis::kernels {

// The head, as layer * num_kv_heads + head, that takes each of the first `seats` ranked seats.
// Every head has `num_tokens` entries and holds `protected_count` of them already.
//   curves   a head keeps, at a kept fraction, the count that its curve gives; its k-th entry,
//            protected ones included, joins at the fraction where the curve reaches k
//   weights  highest averages over the ranked entries
std::vector<std::uint32_t> table_turns(const Profile& profile, std::uint32_t protected_count,
                                       std::uint32_t num_tokens, std::uint64_t seats);

}  // namespace precis::kernels
