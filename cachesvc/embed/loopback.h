// The transport within one process: messages are moved, and bulk bytes are copied once. For the
// embedded service and for tests. transport.h and client_transport.h are its contracts.
#pragma once

#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/transport.h"
#include "client/src/transport/client_transport.h"

namespace precis {

// Connects the two sides: it holds one server, by name. One per test or program.
class LoopbackNet;
std::shared_ptr<LoopbackNet> make_loopback_net();

// The server listens on "loopback:NAME" and the client connects to it, within their shared `net`.
// Each side may have its own loop.
std::unique_ptr<Transport> make_loopback_server(EventLoop& loop, std::shared_ptr<LoopbackNet> net);
std::unique_ptr<ClientTransport> make_loopback_client(EventLoop& loop,
                                                      std::shared_ptr<LoopbackNet> net);

}  // namespace precis
