#include "cachesvc/transport/ucx_status.h"

#include <string>

namespace precis {

Status to_status(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return {};
  std::string message = std::string(what) + ": " + ucs_status_string(status);
  switch (status) {
    case UCS_ERR_CANCELED: return Status::canceled(std::move(message));
    case UCS_ERR_TIMED_OUT: return Status::timed_out(std::move(message));
    case UCS_ERR_NO_MEMORY: return Status::out_of_space(std::move(message));
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_MESSAGE_TRUNCATED: return Status::invalid(std::move(message));
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED: return Status::unsupported(std::move(message));
    default: return Status::unavailable(std::move(message));
  }
}

}  // namespace precis
