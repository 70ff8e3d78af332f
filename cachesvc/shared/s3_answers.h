// Reads the answers of S3 that are XML. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/shared/object_store.h"

namespace precis {

// The names of an answer to ListObjectsV2. kUnavailable if the text is no such answer, for example
// because a proxy has written it. Names that this program does not write are left out.
Result<ObjectStore::Page> parse_s3_list(std::string_view xml);

struct S3Error {
  std::string code;     // of S3, such as SlowDown; empty: the answer has none
  std::string message;  // without control characters, and short
};
S3Error parse_s3_error(std::string_view xml);

// The meaning of an answer that is neither a success nor about the object alone (404 without the
// object, 412 of create()). `what` says what was asked, and `bucket` of which bucket.
Status s3_failure(long http_status, const S3Error& error, const std::string& what,
                  const std::string& bucket);

}  // namespace precis
