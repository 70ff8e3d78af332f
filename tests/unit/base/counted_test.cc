#include "cachesvc/base/counted.h"

#include <catch2/catch.hpp>

namespace precis {

TEST_CASE("one is one, and any other number many", "[unit][base]") {
  CHECK(counted(0, "segment") == "0 segments");
  CHECK(counted(1, "segment") == "1 segment");
  CHECK(counted(2, "segment") == "2 segments");
  CHECK(counted(1, "entry", "entries") == "1 entry");
  CHECK(counted(1000, "entry", "entries") == "1000 entries");
}

}  // namespace precis
