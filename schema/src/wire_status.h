// A Status as a message carries it: its code and its message, cut to what a peer accepts.
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

inline Status read_status(StatusCode code, capnp::Text::Reader message, Status& out) {
  precis::StatusCode status_code{};
  std::string text;
  PRECIS_TRY(read_enum("code", code, static_cast<precis::StatusCode>(kStatusCodeMax), status_code));
  PRECIS_TRY(read_text("message", message, limits::kErrorMessageBytesMax, text));
  out = Status(status_code, std::move(text));
  return {};
}

}  // namespace precis::wire
