#pragma once

#include <cstdint>
#include <string>

namespace precis {

// The time in UTC, in a format of strftime(3) whose result is not empty and has at most 63 bytes.
std::string utc_text(std::uint64_t unix_ms, const char* format);

}  // namespace precis
