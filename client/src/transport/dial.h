// Connecting sockets, without blocking. Used on the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/tls.h"

namespace precis {

// Ends with its handle. `done` runs on a turn of its own.
class Dial {
 public:
  virtual ~Dial() = default;
};
using OnDialed = std::function<void(Result<std::unique_ptr<Socket>>)>;

// To "host:port" or "unix:PATH"; with `tls`, which may be null, TCP is encrypted, and the server's
// certificate must be of the host. kUnavailable if nobody answers, kInvalidArgument for what is no
// address.
std::unique_ptr<Dial> dial(EventLoop& loop, const std::string& address, const TlsContext* tls,
                           OnDialed done);

}  // namespace precis
