// Takes an arena's memory except for pages that lie apart.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/base/arena.h"

namespace precis::testing {

// Leaves only `size_bytes` of pages free, no two of them side by side.
inline std::vector<std::unique_ptr<Arena::Buffer>> leave_apart(Arena& arena,
                                                               std::size_t size_bytes) {
  const std::size_t page = Arena::taken_bytes(1);
  std::vector<std::unique_ptr<Arena::Buffer>> pages;
  while (arena.used_bytes() < arena.memory().size()) pages.push_back(arena.allocate(page).value());
  for (std::size_t i = 0; i * page < size_bytes; ++i) pages.at(2 * i).reset();
  return pages;
}

}  // namespace precis::testing
