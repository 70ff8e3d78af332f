// The content of a line of the audit log.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis {

// The client that acts. Unknown parts are empty.
struct AuditWho {
  std::string tenant = {}, client = {}, from = {};
};

struct AuditEvent {
  // A string literal: a request's name, "Connect", "Connection", "Reload" or "AcceptLoss".
  std::string_view what;
  std::string of = {};  // the object; may be empty
  std::optional<std::string> old_value = {}, new_value = {};
  Status outcome = {};
};

}  // namespace precis
