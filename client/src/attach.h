// Builds a Client on a transport: Client::connect() gives it a transport of its own, and
// Client::open() (precis_embedded) the loopback of a service in this process.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/runtime.h"
#include "client/src/transport/client_transport.h"
#include "precis/client.h"

namespace precis {

// Connects to `address` over `transport`, whose `loop` runs on another thread. `keep_alive` owns
// these and `runtime`; it is released after everything else of the client, by the thread that
// releases the last handle (Client, Put, Prefix), never by the loop's thread.
Result<std::shared_ptr<Client>> attach(std::shared_ptr<void> keep_alive, Runtime& runtime,
                                       EventLoop& loop, ClientTransport& transport,
                                       const std::string& address, const ConnectOptions& options);

}  // namespace precis
