#include "cachesvc/shared/s3_library.h"

#include <dlfcn.h>

#include <string>

namespace precis {
namespace {

constexpr char kFile[] = "libcurl.so.4";
// The first that signs queries as S3 does, and never raises SIGPIPE.
constexpr unsigned kVersionMin = 0x075800;

std::string last_error() {
  const char* const error = ::dlerror();
  return error == nullptr ? "unknown error" : error;
}

}  // namespace

Result<S3Library> load_curl() {
  const std::string load = "load " + std::string(kFile) + ": ";
  void* const file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return Status::unsupported(load + last_error() + "; install the Debian package libcurl4");
  }
  S3Library library;
#define PRECIS_CURL_FUNCTION(name)                                                       \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(file, "curl_" #name)); \
  if (library.name == nullptr) return Status::unsupported(load + last_error());
  PRECIS_CURL_FUNCTIONS(PRECIS_CURL_FUNCTION)
#undef PRECIS_CURL_FUNCTION
  // Loading it may be the first that this process does with libcurl. It locks by itself since 7.84.
  if (library.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Status::unsupported(load + "it cannot be initialized");
  }
  const auto* const version = library.version_info(CURLVERSION_NOW);
  if (version->version_num < kVersionMin || (version->features & CURL_VERSION_SSL) == 0) {
    return Status::unsupported(load + "it is version " + version->version +
                               ", and 7.88 with TLS or later is needed");
  }
  return library;
}

}  // namespace precis
