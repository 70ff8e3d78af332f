// Catch2's implementation takes long to compile, so it is compiled once for all test programs.
#define CATCH_CONFIG_RUNNER
#include "tests/catch_runner.h"

#include <catch2/catch.hpp>

int precis::testing::run_test_cases(int argc, char** argv) {
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;
}
