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
  virtual ~ListeningSocket() = default;  // stops listening and removes a Unix socket's path
  virtual const std::string& address() const = 0;
};
using OnSocket = std::function<void(Descriptor)>;

// `address`: "host:port" or "[v6]:port"; port 0 picks one. kInvalidArgument if the address cannot
// be used.
Result<std::unique_ptr<ListeningSocket>> listen_tcp(EventLoop& loop, const std::string& address,
                                                    OnSocket on_socket);
// Replaces a socket at `path` that no process listens on; anything else at `path` is
// kInvalidArgument. On destruction it leaves files that others have put there since. Every user of
// this host may connect if the directory's mode permits it.
Result<std::unique_ptr<ListeningSocket>> listen_unix(EventLoop& loop, const std::string& path,
                                                     OnSocket on_socket);

}  // namespace precis
