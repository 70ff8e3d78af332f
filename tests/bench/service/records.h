// A store of many small segments, as a crash left it, with one long path among them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/bench/service/plan.h"

namespace precis::bench {

inline constexpr std::uint32_t kLongPathTokens = 32768;

// Of 32 layers and 8 KV heads, so that every segment is 256 head records; heads are narrow, for
// what is looked up are rows of the catalog and not their bytes.
ModelSpec records_model();

// The path of kLongPathTokens, stored as a chain of segments.
std::vector<TokenId> long_path();

// How many segments plan.head_records are, the long path's among them.
std::size_t record_segments(const Plan& plan);

// Copies a store of plan.head_records to the new folder `to`: acknowledged at `wal`, then precisd
// was ended by SIGKILL. It is made once a run, over the transport that is asked for first.
Status copy_records(const Plan& plan, const std::string& transport, const std::string& to);

}  // namespace precis::bench
