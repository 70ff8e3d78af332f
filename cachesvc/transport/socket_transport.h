// The server's half of the transport over sockets: it listens on TCP, with TLS or without, and on a
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
  // Bytes of messages that are arriving, over all connections: past it the one that has most of
  // them is closed.
  std::size_t inbox_bytes_max = SIZE_MAX;
  // How long a stranger may take for its greeting.
  std::chrono::milliseconds greeting_timeout{5'000};
  std::chrono::nanoseconds spin{50'000};  // of the control loop (EventLoop::spin_for)
  std::shared_ptr<RdmaDevice> rdma;       // null: no RDMA; of the same loop
  unsigned bulk_threads = 2;              // loops that bulk sockets are spread over
  unsigned copy_threads = 2;              // for memory that clients share
};

// Destroy it on the loop's thread, or when the loop is not running; before the loop.
std::unique_ptr<Transport> make_socket_transport(EventLoop& loop, const SocketOptions& options);

}  // namespace precis
