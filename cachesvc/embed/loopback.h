// The transport inside one process: messages are moved, bulk bytes are copied once. For the
// embedded service and for tests; the contracts are those of transport.h and client_transport.h.
#pragma once

#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/transport.h"
#include "client/src/transport/client_transport.h"

namespace precis {

// Where the two halves find each other: one server, by its name. One per test or program.
class LoopbackNet;
std::shared_ptr<LoopbackNet> make_loopback_net();

// They listen on and connect to "loopback:NAME" within `net`, which they share. Halves of one net
// may be on different loops.
std::unique_ptr<Transport> make_loopback_server(EventLoop& loop, std::shared_ptr<LoopbackNet> net);
std::unique_ptr<ClientTransport> make_loopback_client(EventLoop& loop,
                                                      std::shared_ptr<LoopbackNet> net);

}  // namespace precis
