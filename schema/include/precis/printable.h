// Text that somebody else wrote, made safe to show: names, error messages, paths. A terminal acts
// on control characters, and bidirectional controls let a line read as what it is not.
#pragma once

#include <string>
#include <string_view>

namespace precis {

// `text` with every control character (C0, DEL, C1), line and paragraph separator, and
// bidirectional control (U+061C, U+200E, U+200F, U+202A..U+202E, U+2066..U+2069) written as \uXXXX,
// and every byte that is no UTF-8 as \xNN. All else is unchanged.
std::string printable(std::string_view text);

// The same, but line feeds stay: for text of several lines, each of whose parts was made printable
// before.
std::string printable_lines(std::string_view text);

// `text` as a JSON string, with its quotes, on one line and safe to show: as printable(), with
// U+FFFD in the place of every byte that is no UTF-8.
std::string json_string(std::string_view text);

}  // namespace precis
