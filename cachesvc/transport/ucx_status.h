// The one place where a UCX error becomes a Status.
#pragma once

#include <ucs/type/status.h>

#include <string_view>

#include "precis/status.h"

namespace precis {

// "`what`: <UCX's words>"; UCS_OK is OK.
Status to_status(ucs_status_t status, std::string_view what);

}  // namespace precis
