// The limit on reads that start again because the segment was trimmed or put again meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "precis/status.h"

namespace precis {

inline constexpr int kReadTriesMax = 16;
inline constexpr std::uint32_t kReadAgainMs = 10;

inline Status changes_too_often(const std::string& what) {
  return Status::rejected(what + " was trimmed or put again during each of " +
                              std::to_string(kReadTriesMax) + " attempts to read it: try again",
                          kReadAgainMs);
}

}  // namespace precis
