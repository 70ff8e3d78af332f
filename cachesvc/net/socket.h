// A connected stream socket that never blocks: TCP, with TLS or without, or Unix.
// One thread at a time, except where shares_state() says otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// TLS on one socket (tls.h).
class TlsSession;

class Socket {
 public:
  struct Io {
    enum class State { kMoved, kWait, kEnded };
    State state = State::kMoved;
    std::size_t bytes = 0;  // moved, at least one
    Status why;             // of kEnded: the peer closed, is gone, or broke TLS
  };

  // Takes the descriptor and makes it non-blocking. `tls` may be null.
  explicit Socket(Descriptor descriptor, std::unique_ptr<TlsSession> tls = nullptr);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_.get(); }
  bool is_unix() const { return is_unix_; }
  bool is_encrypted() const { return tls_ != nullptr; }
  // Whether read() and write() use common state, so that only one of them may run at a time. They
  // are independent otherwise.
  bool shares_state() const { return tls_ != nullptr; }

  // TLS's own exchange; kMoved once it is over, and at once without TLS.
  Io handshake();
  Io read(MutableBytes into);
  // Also takes a descriptor that came with the first byte, if one did; further ones are closed.
  Io read(MutableBytes into, Descriptor& passed);
  // The ranges one after the other, as far as the kernel takes them.
  Io write(std::span<const Bytes> ranges);
  // Passes `descriptor` with the first byte; on Unix sockets.
  Io write(Bytes bytes, int descriptor);
  // Whether read() would bring bytes although the descriptor is not readable.
  bool has_buffered() const;
  // Ends both directions; the peer reads what was sent before.
  void shut_down();

 private:
  Descriptor descriptor_;
  std::unique_ptr<TlsSession> tls_;
  bool is_unix_ = false;
};

// "10.0.0.7:40312", or "unix: uid 1000, pid 4242" as the kernel tells it; and the part of it that
// counts as one address.
struct PeerName {
  std::string text, address;
};
PeerName peer_name(int socket);

}  // namespace precis
