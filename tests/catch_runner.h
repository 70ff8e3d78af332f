#pragma once

namespace precis::testing {

// Runs the test cases that the command line names. Returns 0 if all passed, else 1: Catch2 itself
// returns the number of failures, and ctest would take 77 of them for a skipped test.
int run_test_cases(int argc, char** argv);

}  // namespace precis::testing
