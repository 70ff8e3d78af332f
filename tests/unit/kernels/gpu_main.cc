// Catch2's main for tests that need a CUDA device; exits 77 without one: CTest says "skipped".
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "precis/kernels.h"

int main(int argc, char** argv) {
  const auto backend = precis::kernels::make_cuda_backend(0);
  if (!backend.ok()) {
    std::printf("skipped: %s\n", backend.status().to_string().c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;  // Catch2 would return a count
}
