// Has the service answer an operator's request, as it answers the requests of any client: with the
// same handlers, limits, log and audit log.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/server/operator_access.h"
#include "precis/messages.h"

namespace precis::admin {

// An encoded ServerMessage, or why there is no answer.
using Called = std::function<void(Result<std::vector<std::byte>>)>;

// Loop thread only. Calls `done` once, on the loop: at the latest when the service stops. `from` is
// the operator's address, for the logs.
void call(EventLoop& loop, OperatorAccess& access, const std::string& tenant, std::string from,
          const msg::RequestBody& request, Called done);

// The reply in an answer of call(). kInternal if there is none.
Result<msg::ReplyBody> reply_in(const std::vector<std::byte>& answer);

}  // namespace precis::admin
