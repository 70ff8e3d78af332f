// The main function of tests that need a CUDA device. If there is none, it exits with 77, which
// CTest reports as "skipped".
#include <cstdio>

#include "precis/kernels.h"
#include "precis/page_mover.h"
#include "tests/catch_runner.h"

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
  return precis::testing::run_test_cases(argc, argv);
}
