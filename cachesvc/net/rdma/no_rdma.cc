// Replaces uct_*.cc in a build without UCX (PRECIS_RDMA).
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/rdma/rdma_choice.h"

namespace precis {

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open(EventLoop*, const std::string& choice) {
  const RdmaChoice wanted = parse_rdma(choice);
  if (!wanted.is_on || wanted.devices.empty()) return std::unique_ptr<RdmaDevice>();
  return Status::unsupported("rdma is '" + choice +
                             "', but this build has no UCX: build with -DPRECIS_RDMA=ON, or set "
                             "rdma = \"auto\" or \"off\"");
}

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open_software(EventLoop*) {
  return Status::unsupported("this build has no UCX");
}

}  // namespace precis
