// The whole service of one process. It builds every part from a Config and connects them; nothing
// is global. precisd runs it over sockets; Client::open() runs it in a program over the loopback.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/store/extent_store.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class OperatorAccess;

class Service {
 public:
  // Builds the transport on the service's loop.
  using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(EventLoop&)>;
  using OpenStore = std::function<Result<std::unique_ptr<Store>>(const std::string& dir,
                                                                 const ExtentStoreOptions&)>;

  // Opens the data directory, allocates the memory, and listens on config.listen, which the
  // transport interprets. `runtime` outlives the service.
  static Result<std::unique_ptr<Service>> create(const Config& config, Runtime& runtime,
                                                 const MakeTransport& make_transport,
                                                 const OpenStore& open_store = open_disk_store);
  ~Service();

  const std::string& address() const;  // the bound address
  EventLoop& loop();
  OperatorAccess& operators();  // for the admin port; used on the loop

  // Serves until stop(), then closes connections, lets requests in progress end, and returns.
  void run();
  void stop();  // any thread

  // Any thread while it runs. Reads the configuration with `read` off the loop, applies the
  // settings that a running service can change (config_changes.h), and names the others in the log.
  // If `read` fails, or the configuration is not valid, nothing changes and the log says why. Calls
  // `done` on the loop at the end. A later reload may replace a waiting one (reload.h).
  void reload(std::function<Result<Config>()> read, std::function<void()> done);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
