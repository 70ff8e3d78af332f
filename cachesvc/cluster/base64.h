// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace precis::cluster {

std::string to_base64(std::string_view bytes);
// Absent if the text is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace precis::cluster
