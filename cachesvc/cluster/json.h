// JSON that others have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace precis::cluster {

using Json = nlohmann::json;

// Discarded if the text is no JSON. Values that are nested deeper than any of ours are left out,
// because many levels take much memory.
inline Json parsed(std::string_view text) {
  constexpr int kDepthMax = 8;
  const auto is_flat = [](int depth, Json::parse_event_t, Json&) { return depth <= kDepthMax; };
  return Json::parse(text, is_flat, /*allow_exceptions=*/false);
}

}  // namespace precis::cluster
