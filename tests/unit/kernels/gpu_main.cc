// Catch2's main for tests that need a CUDA device. Exits 77 without one: CTest reports "skipped".
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "precis/kernels.h"
#include "precis/page_mover.h"

int main(int argc, char** argv) {
  // References both functions, so that the linker takes both from the library linked first, the
  // emulator or the kernels.
  const auto backend = precis::kernels::make_cuda_backend(0);
  const auto mover = precis::kernels::make_cuda_page_mover(0);
  for (const auto& status : {backend.status(), mover.status()}) {
    if (status.ok()) continue;
    std::printf("skipped: %s\n", status.to_string().c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv) == 0 ? 0 : 1;  // Catch2 would return a count
}
