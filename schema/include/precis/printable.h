// Makes text from outside safe to show: names, error messages, paths. Terminals act on control
// characters, and bidirectional controls can make a line look like another text.
#pragma once

#include <string>
#include <string_view>

namespace precis {

// Returns `text` with unsafe parts escaped. As \uXXXX: every control character (C0, DEL, C1), line
// and paragraph separator, and bidirectional control (U+061C, U+200E, U+200F, U+202A..U+202E,
// U+2066..U+2069). As \xNN: every byte that is not UTF-8. Everything else is unchanged.
std::string printable(std::string_view text);

// Like printable(), but keeps line feeds. For text of several lines whose parts were made printable
// before.
std::string printable_lines(std::string_view text);

// `text` as a JSON string with its quotes, on one line and safe to show: escaped like printable(),
// but every byte that is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

}  // namespace precis
