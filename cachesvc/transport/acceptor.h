// Listening sockets: TCP and Unix. Used on the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/base/event_loop.h"
#include "precis/status.h"

namespace precis {

class ListeningSocket {
 public:
  virtual ~ListeningSocket() = default;  // stops; a Unix socket's path goes with it
  virtual const std::string& address() const = 0;
};
using OnSocket = std::function<void(Descriptor)>;

// `address`: "host:port", "[v6]:port"; port 0 picks one. kInvalidArgument if it cannot be had.
Result<std::unique_ptr<ListeningSocket>> listen_tcp(EventLoop& loop, const std::string& address,
                                                    OnSocket on_socket);
// Replaces a socket at `path` that nobody listens on; anything else there is kInvalidArgument. What
// others put there later stays. Every user of this host may connect where the directory lets them.
Result<std::unique_ptr<ListeningSocket>> listen_unix(EventLoop& loop, const std::string& path,
                                                     OnSocket on_socket);

}  // namespace precis
