// Connects sockets without blocking. Used on the loop's thread.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/net/greeting_socket.h"
#include "cachesvc/net/tls.h"

namespace precis {

// Connects to "host:port" or "unix:PATH". With `tls`, which may be null, TCP is encrypted, and the
// server's certificate must name the host. kUnavailable if nobody answers, kInvalidArgument for a
// malformed address.
Task<Result<std::unique_ptr<GreetingSocket>>> dial(EventLoop& loop, std::string address,
                                                   const TlsContext* tls);

}  // namespace precis
