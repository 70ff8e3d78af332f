// Client::open(): the whole service in the caller's process, over the loopback transport.

#include <filesystem>
#include <thread>

#include "cachesvc/embed/loopback.h"
#include "cachesvc/server/service.h"
#include "client/src/attach.h"
#include "precis/client.h"

namespace precis {
namespace {

constexpr const char* kAddress = "loopback:embedded";  // a name within one LoopbackNet

// Otherwise an address that was meant for connect() would become a directory of that name.
Status check_no_address(const std::string& directory) {
  const auto colon = directory.rfind(':');
  if (colon == std::string::npos || directory.find('/') != std::string::npos) return {};
  const std::string port = directory.substr(colon + 1);
  if (port.empty() || port.find_first_not_of("0123456789") != std::string::npos) return {};
  std::error_code absent;
  if (std::filesystem::is_directory(directory, absent)) return {};
  return Status::invalid("'" + directory + "' is an address, for connect(); a directory of that " +
                         "name is './" + directory + "'");
}

// A service and its thread. It stops when the last handle of the client is released.
class EmbeddedService {
 public:
  EmbeddedService(std::unique_ptr<MachineRuntime> machine, std::unique_ptr<Service> running,
                  std::shared_ptr<LoopbackNet> net)
      : runtime(std::move(machine)),
        service(std::move(running)),
        transport(make_loopback_client(service->loop(), std::move(net))),
        thread_([this] { service->run(); }) {}
  ~EmbeddedService() {
    service->stop();
    thread_.join();
  }
  EmbeddedService(const EmbeddedService&) = delete;
  EmbeddedService& operator=(const EmbeddedService&) = delete;

  const std::unique_ptr<MachineRuntime> runtime;
  const std::unique_ptr<Service> service;
  const std::unique_ptr<ClientTransport> transport;  // destroyed before the service's loop

 private:
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<Client>> Client::open(const std::string& directory,
                                             const OpenOptions& options) {
  PRECIS_TRY(check_no_address(directory));
  Config config;
  config.data_dir = directory;
  config.listen = kAddress;
  config.log_level = "warn";  // a library does not log routine events
  config.memory_bytes = options.memory_bytes;
  config.max_disk_bytes = options.max_disk_bytes;
  config.compute_threads = options.threads;
  config.device = options.device;
  config.takes_stored_tenants = false;
  const std::shared_ptr<LoopbackNet> net = make_loopback_net();
  auto runtime = std::make_unique<MachineRuntime>();
  PRECIS_ASSIGN(auto service, Service::create(config, *runtime, [&](EventLoop& loop) {
                  return Result<std::unique_ptr<Transport>>(make_loopback_server(loop, net));
                }));
  auto embedded = std::make_shared<EmbeddedService>(std::move(runtime), std::move(service), net);
  ConnectOptions within;
  within.page_mover = options.page_mover;
  return attach(embedded, *embedded->runtime, embedded->service->loop(), *embedded->transport,
                embedded->service->address(), within);
}

}  // namespace precis
