// Finds the name that a misspelled name most likely means.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace precis {

// Returns the name in `names` with the fewest edits to `name`. An edit omits, adds or replaces a
// letter, or swaps two adjacent letters. Returns an empty string if every name needs more than two
// edits, or more than half as many as `name` has letters.
std::string near_name(std::string_view name, const std::set<std::string>& names);

}  // namespace precis
