// Connecting sockets, without blocking. Used on the loop's thread.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/net/greeting_socket.h"
#include "cachesvc/net/tls.h"

namespace precis {

// To "host:port" or "unix:PATH"; with `tls`, which may be null, TCP is encrypted, and the server's
// certificate must be of the host. kUnavailable if nobody answers, kInvalidArgument for what is no
// address.
Task<Result<std::unique_ptr<GreetingSocket>>> dial(EventLoop& loop, std::string address,
                                                   const TlsContext* tls);

}  // namespace precis
