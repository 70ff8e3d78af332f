// The whole service of one process: builds every part from a Config, wires them, and nothing is
// global. precisd runs it over sockets; Client::open() runs it inside a program over the loopback.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class Service {
 public:
  // Builds the transport on the service's loop.
  using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(EventLoop&)>;

  // Opens the data directory and takes the memory; listens on config.listen as the transport reads
  // it.
  static Result<std::unique_ptr<Service>> create(const Config& config,
                                                 const MakeTransport& make_transport);
  ~Service();

  const std::string& address() const;  // bound
  EventLoop& loop();

  // Serves until stop(): ends connections, lets what is under way end, then returns.
  void run();
  void stop();  // any thread, also a signal handler's

  // Any thread while it runs: reads the configuration anew by `read`, on a thread beside the loop,
  // takes up what a running service can of it (config_changes.h) and names the rest in the log.
  // If `read` fails, or the configuration is not valid, nothing changes and the log says why. Calls
  // `done` on the loop when it is over.
  void reload(std::function<Result<Config>()> read, std::function<void()> done);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
