// For builds without the headers of libcurl.
#include "cachesvc/shared/s3_tier.h"

namespace precis {

Result<std::unique_ptr<ObjectStore>> make_s3_store(const S3Settings&) {
  return Status::unsupported(
      "connect to S3: this build has no libcurl; install the Debian package libcurl4-openssl-dev "
      "and build again");
}

}  // namespace precis
