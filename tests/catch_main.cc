// The main function of the test programs that need no other.
#include "tests/catch_runner.h"

int main(int argc, char** argv) { return precis::testing::run_test_cases(argc, argv); }
