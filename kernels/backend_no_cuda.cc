// Replaces backend_cuda.cc in builds without CUDA.
#include "precis/kernels.h"

namespace precis::kernels {

Result<std::unique_ptr<Backend>> make_cuda_backend(int, unsigned,
                                                   std::function<void(const Status&)>) {
  return Status::unsupported("this build has no CUDA (configure with PRECIS_CUDA=ON)");
}

}  // namespace precis::kernels
