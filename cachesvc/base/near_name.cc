#include "cachesvc/base/near_name.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace precis {
namespace {

constexpr std::size_t kDifferencesMax = 2;

// Returns the smallest number of edits that turn `a` into `b`. Row i is for the first i letters of
// `a`.
std::size_t differences(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string near_name(std::string_view name, const std::set<std::string>& names) {
  std::string nearest;
  std::size_t least = std::min(kDifferencesMax, name.size() / 2) + 1;
  for (const std::string& each : names) {
    if (each.size() > name.size() + kDifferencesMax) continue;  // limits the cost of a long key
    if (name.size() > each.size() + kDifferencesMax) continue;
    const std::size_t found = differences(name, each);
    if (found >= least) continue;
    least = found;
    nearest = each;
  }
  return nearest;
}

}  // namespace precis
