// The name that somebody who misspelt one most likely meant.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace precis {

// The one of `names` that differs from `name` in least letters, of those left out, added, replaced
// or swapped with the next one; empty where all differ in more than two, or in half of the name.
std::string near_name(std::string_view name, const std::set<std::string>& names);

}  // namespace precis
