// Numbers of bytes as text with a unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis {

inline constexpr const char* kSizeForm = "a size such as 512MiB, 24GiB or 1TiB";

// Parses "512MiB", "4GiB", "1TiB" or "1000000" as bytes. The message of kInvalidArgument continues
// after the name of the setting: "is 'x', must be ...".
Result<std::uint64_t> parse_bytes(std::string_view text);
// Formats bytes for parse_bytes(), in the largest unit that is exact: "16MiB".
std::string size_text(std::uint64_t bytes);

}  // namespace precis
