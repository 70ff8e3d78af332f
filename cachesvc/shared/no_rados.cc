// For builds without the headers of librados.
#include "cachesvc/shared/rados_tier.h"

namespace precis {

Result<std::unique_ptr<SharedTier>> connect_rados(const RadosSettings&) {
  return Status::unsupported(
      "connect to Ceph: this build has no librados; install the Debian package librados-dev and "
      "build again");
}

}  // namespace precis
