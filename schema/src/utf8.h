// Well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates).
#pragma once

#include <cstddef>
#include <string_view>

namespace precis {

// The length in bytes of the character at the front of `s`; 0 if the bytes are not UTF-8. `s` is
// not empty.
std::size_t utf8_length(std::string_view s);
bool is_utf8(std::string_view s);

}  // namespace precis
