#include "cachesvc/shared/rados_library.h"

#include <dlfcn.h>

#include <string>

namespace precis::rados {
namespace {

constexpr char kFile[] = "librados.so.2";

std::string last_error() {
  const char* const error = ::dlerror();
  return error == nullptr ? "unknown error" : error;
}

}  // namespace

Result<RadosLibrary> load_rados() {
  void* const file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return Status::unsupported("load " + std::string(kFile) + ": " + last_error() +
                               "; install the Debian package librados2");
  }
  RadosLibrary library;
#define PRECIS_RADOS_FUNCTION(name)                                                       \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(file, "rados_" #name)); \
  if (library.name == nullptr) {                                                          \
    return Status::unsupported("load " + std::string(kFile) + ": " + last_error() +       \
                               "; install librados2 of Ceph 16 or later");                \
  }
  PRECIS_RADOS_FUNCTIONS(PRECIS_RADOS_FUNCTION)
#undef PRECIS_RADOS_FUNCTION
  return library;
}

}  // namespace precis::rados
