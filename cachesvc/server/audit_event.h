// The contents of a line of the audit log.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis {

// The one who acts; empty where a part is not known.
struct AuditWho {
  std::string tenant = {}, client = {}, from = {};
};

struct AuditEvent {
  // A literal: a request's name, "Connect", "Connection", "Reload" or "AcceptLoss".
  std::string_view what;
  std::string of = {};  // what it was about; may be empty
  std::optional<std::string> old_value = {}, new_value = {};
  Status outcome = {};
};

}  // namespace precis
