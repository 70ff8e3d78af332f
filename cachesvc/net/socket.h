// A connected, non-blocking stream socket: TCP or Unix; TLS is a subclass (tls.h). One thread may
// read while another writes, except if is_encrypted(): then both directions share state.
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
    std::size_t bytes = 0;  // bytes moved, at least one
    Status why;             // for kEnded: kUnavailable if the peer closed, is gone or broke TLS
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

  // The TLS handshake. kMoved once it is complete, and at once without TLS. A server that refuses
  // the peer ends with kPermissionDenied for its certificate, and with kInvalidArgument otherwise.
  virtual Io handshake() { return {}; }
  // With `passed`, also receives a descriptor that came with the first byte, if any. Further
  // descriptors are closed.
  virtual Io read(MutableBytes into, Descriptor* passed = nullptr);
  // Writes the ranges in order, as far as the kernel accepts them. `pass`, a descriptor or -1, goes
  // with the first byte, on Unix sockets.
  virtual Io write(std::span<const Bytes> ranges, int pass = -1);
  // Whether read() would return bytes although the descriptor is not readable.
  virtual bool has_buffered() const { return false; }
  // Shuts down both directions. The peer can still read the bytes sent before.
  virtual void shut_down();

 private:
  Descriptor descriptor_;
  bool is_unix_ = false;
};

// Sets whether peers may pass descriptors over a Unix socket. Accepted sockets inherit the setting
// of the listening socket. A passed descriptor may take long to close (a lingering TCP socket), and
// the reader's thread closes it. No effect on kernels that cannot forbid it (before 6.16).
void let_pass_descriptors(int socket, bool on);

// A peer's name, "10.0.0.7:40312" or "unix: uid 1000, pid 4242" as the kernel reports it, and the
// part of it that counts as one address.
struct PeerName {
  std::string text, address;
};
PeerName peer_name(int socket);

}  // namespace precis
