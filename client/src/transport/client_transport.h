// The client's side of the transport (the server's side: cachesvc/transport/transport.h). The
// client exposes memory and names it in requests; the server moves the bytes.
//
// Threads: every call and every callback happens on the transport's EventLoop thread, except
// register_memory(), allocate_memory() and expose(), which any thread may call. A callback never
// runs inside the call that it was passed to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/net/messages.h"
#include "cachesvc/net/registration.h"
#include "precis/greeting.h"
#include "precis/remote_region.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Client memory that the server may reach until this is destroyed. The destructor ends the server's
// access: it waits, within a bound, for transfers in progress.
class Exposure {
 public:
  virtual ~Exposure() = default;
  virtual RemoteRegion region() const = 0;
};

// The client's end of a connection. The destructor closes it.
class ClientConnection : public virtual Messages {
 public:
  // Opens `memory`, a part of `registration`, to this connection's server. The first call for
  // memory of allocate_memory() waits until the server has mapped it, except on the loop's thread.
  virtual Result<std::unique_ptr<Exposure>> expose(Registration& registration,
                                                   MutableBytes memory) = 0;
};

class ClientTransport {
 public:
  virtual ~ClientTransport() = default;

  // kOutOfSpace or kUnsupported if the memory cannot be registered.
  virtual Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) = 0;
  // Memory that the transport allocates and that a server on the same host reaches without the
  // client's help: at least `size_bytes`, on a huge page's boundary, zeros. Its registration owns
  // it. Errors as above.
  virtual Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) = 0;

  struct Connected {
    std::unique_ptr<ClientConnection> connection;  // null if refused; welcome.status says why
    Welcome welcome;
  };
  // Connects to "host:port" or "unix:PATH" and logs in. kUnavailable if nobody answers,
  // kVersionMismatch if the server has another version, kPermissionDenied if it does not know the
  // login's token, kTimedOut after `timeout_ms`.
  virtual void connect(const std::string& address, const Login& login, std::uint32_t timeout_ms,
                       std::function<void(Result<Connected>)> done) = 0;
};

}  // namespace precis
