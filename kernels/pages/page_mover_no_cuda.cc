// Replaces page_mover_cuda.cc in builds without CUDA.
#include "precis/page_mover.h"

namespace precis::kernels {

Result<std::shared_ptr<PageMover>> make_cuda_page_mover(int) {
  return Status::unsupported("this build has no CUDA (configure with PRECIS_CUDA=ON)");
}

}  // namespace precis::kernels
