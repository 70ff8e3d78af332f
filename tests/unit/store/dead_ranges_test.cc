#include "cachesvc/store/dead_ranges.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace precis {
namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
Ranges of(const DeadRanges& ranges) { return {ranges.begin(), ranges.end()}; }

TEST_CASE("adjacent dead ranges become one, and a part of one can be removed", "[store]") {
  DeadRanges dead;
  dead.add(10, 5);
  dead.add(20, 5);
  CHECK(of(dead) == Ranges{{10, 5}, {20, 5}});
  dead.add(15, 5);
  CHECK(of(dead) == Ranges{{10, 15}});
  dead.remove(12, 3);
  CHECK(of(dead) == Ranges{{10, 2}, {15, 10}});
  dead.remove(10, 2);
  dead.remove(15, 10);
  CHECK(of(dead).empty());
}

}  // namespace
}  // namespace precis
