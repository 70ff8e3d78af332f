// The transport inside one process: messages are moved, bulk bytes are copied once. For the
// embedded service and for tests; the contract is transport.h's, as over UCX.
#pragma once

#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// Where loopback transports find each other: the names listened on. One per test or program.
class LoopbackNet;
std::shared_ptr<LoopbackNet> make_loopback_net();

// Listens on and connects to "loopback:NAME" within `net`; without one, within itself. Transports
// of one net may be on different loops. The net is shared by its transports, the last of which
// frees it.
std::unique_ptr<Transport> make_loopback_transport(EventLoop& loop,
                                                   std::shared_ptr<LoopbackNet> net = nullptr);

}  // namespace precis
