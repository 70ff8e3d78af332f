// A Status in a message: its code, and its message cut to the maximum that a peer accepts.
#pragma once

#include <string>

#include "control.capnp.h"
#include "precis/limits.h"
#include "precis/status.h"
#include "wire_fields.h"

namespace precis::wire {

inline std::string wire_message(const Status& status) {
  return clean_text(status.message(), limits::kErrorMessageBytesMax);
}

inline Status read_status(StatusCode code, capnp::Text::Reader message,
                          std::uint32_t retry_after_ms, Status& out) {
  precis::StatusCode status_code{};
  std::string text;
  PRECIS_TRY(read_enum("code", code, static_cast<precis::StatusCode>(kStatusCodeMax), status_code));
  PRECIS_TRY(read_text("message", message, limits::kErrorMessageBytesMax, text));
  if (retry_after_ms != 0 && status_code != precis::StatusCode::kRejected) {
    return field_error("retry_after_ms", "stands beside a code that is not rejected");
  }
  out = status_code == precis::StatusCode::kRejected
            ? Status::rejected(std::move(text), retry_after_ms)
            : Status(status_code, std::move(text));
  return {};
}

}  // namespace precis::wire
