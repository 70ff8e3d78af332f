// A store of many small segments and one long path, in the state that a crash leaves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/bench/service/plan.h"

namespace precis::bench {

inline constexpr std::uint32_t kLongPathTokens = 32768;

// 32 layers and 8 KV heads, so that every segment has 256 head records. Heads are narrow, because
// lookups read rows of the catalog and not payload.
ModelSpec records_model();

// The path of kLongPathTokens tokens, stored as a chain of segments.
std::vector<TokenId> long_path();

// The number of segments that have plan.head_records head records, including those of the long
// path.
std::size_t record_segments(const Plan& plan);

// Copies a store with plan.head_records to the new folder `to`. All segments were acknowledged at
// `wal` before precisd was ended by SIGKILL. The store is made once a run, over the transport that
// is requested first.
Status copy_records(const Plan& plan, const std::string& transport, const std::string& to);

}  // namespace precis::bench
