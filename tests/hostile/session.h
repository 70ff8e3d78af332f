// One session of a client, to be recorded or changed. A plan, which may be random, determines its
// requests and the transport of its bytes.
#pragma once

#include <cstdint>

#include "tests/hostile/talk.h"

namespace precis::hostile {

inline constexpr std::uint32_t kParts = 4;  // bits of `parts`: put, get, operations, sessions

struct Plan {
  bool control_over_unix = false;
  enum class Bulk { kNone, kTcp, kUnix, kShared } bulk = Bulk::kTcp;
  std::uint32_t parts = (1u << kParts) - 1;
  std::uint32_t seed = 0;  // of token paths and values
};
Plan random_plan(std::mt19937& random);

// True if every request of the plan succeeded.
bool run_session(Talk& talk, const Login& login, const Plan& plan);

}  // namespace precis::hostile
