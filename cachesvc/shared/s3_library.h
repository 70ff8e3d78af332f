// The functions of libcurl that are used. The library is loaded when it is needed, so that a
// machine without it runs the same program.
#pragma once

#define CURL_DISABLE_TYPECHECK  // its macros are for calls by name
#include <curl/curl.h>

#include "precis/status.h"

namespace precis {

// clang-format off
#define PRECIS_CURL_FUNCTIONS(X)                                                              \
  X(global_init) X(version_info) X(easy_init) X(easy_setopt) X(easy_perform) X(easy_getinfo)  \
  X(easy_reset) X(easy_cleanup) X(easy_strerror) X(slist_append) X(slist_free_all)
// clang-format on

struct S3Library {
#define PRECIS_CURL_FUNCTION(name) decltype(&::curl_##name) name = nullptr;
  PRECIS_CURL_FUNCTIONS(PRECIS_CURL_FUNCTION)
#undef PRECIS_CURL_FUNCTION
};

// kUnsupported if this machine has no libcurl, or one that cannot sign requests. The library stays
// loaded until the process ends.
Result<S3Library> load_curl();

}  // namespace precis
