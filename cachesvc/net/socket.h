// A connected stream socket that never blocks: TCP or Unix; TLS is a kind of its own (tls.h). One
// thread may read while another writes, but where is_encrypted(): there both use common state.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class Socket {
 public:
  struct Io {
    enum class State { kMoved, kWait, kEnded };
    State state = State::kMoved;
    std::size_t bytes = 0;  // moved, at least one
    Status why;             // of kEnded: kUnavailable where the peer closed, is gone or broke TLS
  };

  // Takes the descriptor and makes it non-blocking.
  explicit Socket(Descriptor descriptor);
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_.get(); }
  bool is_unix() const { return is_unix_; }
  virtual bool is_encrypted() const { return false; }
  std::string kind() const { return is_unix_ ? "unix" : is_encrypted() ? "tls" : "tcp"; }

  // TLS's own exchange; kMoved once it is over, and at once without TLS. A server that refuses the
  // peer by it says kPermissionDenied for its certificate, and else kInvalidArgument.
  virtual Io handshake() { return {}; }
  // With `passed` also takes a descriptor that came with the first byte, if one did; further ones
  // are closed.
  virtual Io read(MutableBytes into, Descriptor* passed = nullptr);
  // The ranges one after the other, as far as the kernel takes them. `pass`, a descriptor or -1,
  // goes with the first byte, on Unix sockets.
  virtual Io write(std::span<const Bytes> ranges, int pass = -1);
  // Whether read() would bring bytes although the descriptor is not readable.
  virtual bool has_buffered() const { return false; }
  // Ends both directions; the peer reads what was sent before.
  virtual void shut_down();

 private:
  Descriptor descriptor_;
  bool is_unix_ = false;
};

// Whether peers may pass descriptors over a Unix socket; a listening one's setting is that of the
// sockets it accepts. A passed descriptor may take long to close (a TCP socket that lingers), and
// the reader's thread closes it. Changes nothing where the kernel can't forbid it (before 6.16).
void let_pass_descriptors(int socket, bool on);

// "10.0.0.7:40312", or "unix: uid 1000, pid 4242" as the kernel tells it; and the part of it that
// counts as one address.
struct PeerName {
  std::string text, address;
};
PeerName peer_name(int socket);

}  // namespace precis
