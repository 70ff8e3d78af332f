// The server's side of the transport over sockets. It listens on TCP, with or without TLS, and on a
// Unix socket, and nowhere else.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/tls.h"
#include "cachesvc/transport/transport.h"

namespace precis {

struct SocketOptions {
  std::string listen_unix;          // a path; empty: no Unix socket
  std::shared_ptr<TlsContext> tls;  // null: TCP is not encrypted
  // Limit on the bytes of messages being received, over all connections. Past it, the connection
  // with the most bytes is closed.
  std::size_t inbox_bytes_max = SIZE_MAX;
  // Time limit for the greeting of a pending connection.
  std::chrono::milliseconds greeting_timeout{5'000};
  std::chrono::nanoseconds spin{50'000};  // for the control loop (EventLoop::spin_for)
  std::shared_ptr<RdmaDevice> rdma;       // null: no RDMA; uses the same loop
  unsigned bulk_threads = 2;              // loops that share the bulk sockets
  unsigned copy_threads = 2;              // for copies of memory that clients share
};

// Destroy it on the loop's thread, or while the loop does not run, and before the loop.
std::unique_ptr<Transport> make_socket_transport(EventLoop& loop, const SocketOptions& options);

}  // namespace precis
