#include "precis/status.h"

#include <cstdio>
#include <cstdlib>

namespace precis {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kNotFound: return "not_found";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kPermissionDenied: return "permission_denied";
    case StatusCode::kRejected: return "rejected";
    case StatusCode::kOutOfSpace: return "out_of_space";
    case StatusCode::kTimedOut: return "timed_out";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kCorruption: return "corruption";
    case StatusCode::kVersionMismatch: return "version_mismatch";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kCanceled: return "canceled";
    case StatusCode::kInternal: return "internal";
    case StatusCode::kConflict: return "conflict";
    case StatusCode::kMoved: return "moved";
  }
  return "unknown";
}

std::optional<StatusCode> parse_status_code(std::string_view name) {
  for (std::uint8_t value = 0; value <= kStatusCodeMax; ++value) {
    const auto code = static_cast<StatusCode>(value);
    if (status_code_name(code) == name) return code;
  }
  return std::nullopt;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  Status status = *this;
  status.message_ = std::string(context) + ": " + message_;
  return status;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(status_code_name(code_)) + ": " + message_;
}

void check_failed(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: %.*s\n", file, line, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace precis
