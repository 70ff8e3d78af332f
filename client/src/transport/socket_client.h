// The ClientTransport over sockets.
#pragma once

#include <chrono>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/tls.h"
#include "client/src/transport/client_transport.h"

namespace precis {

struct SocketClientOptions {
  std::shared_ptr<TlsContext> tls;  // null: TCP is not encrypted
  // Whether memory may be shared with a server of the same host, over its Unix socket.
  bool share_memory = true;
  std::chrono::nanoseconds spin{50'000};  // of the loop (EventLoop::spin_for)
  std::shared_ptr<RdmaDevice> rdma;       // null: no RDMA; shared with the registered memory
};

// Destroy it before the loop, on the loop's thread or when the loop does not run.
std::unique_ptr<ClientTransport> make_socket_client(EventLoop& loop,
                                                    const SocketClientOptions& options = {});

}  // namespace precis
