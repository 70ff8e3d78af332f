// Client::connect(): a loop, its thread and a transport over sockets for one client.
#include <pthread.h>

#include <thread>

#include "client/src/attach.h"
#include "client/src/transport/socket_client.h"

namespace precis {
namespace {

class OwnLoop {
 public:
  static Result<std::shared_ptr<OwnLoop>> start(const ConnectOptions& options) {
    auto own = std::make_shared<OwnLoop>();  // shared: attach() keeps it alive
    SocketClientOptions sockets;
    sockets.share_memory = options.share_memory;
    if (!options.tls_ca.empty()) {
      PRECIS_ASSIGN(sockets.tls,
                    TlsContext::for_client({options.tls_cert, options.tls_key, options.tls_ca}));
    }
    // RDMA is not encrypted, so beside TLS it must be named explicitly.
    const bool is_off = options.rdma == "auto" && sockets.tls != nullptr;
    auto rdma = RdmaDevice::open(nullptr, is_off ? "off" : options.rdma);
    // A device that was not named may fail: then bytes go over sockets.
    if (!rdma.ok() && options.rdma != "auto") return rdma.status();
    if (rdma.ok()) sockets.rdma = std::move(*rdma);
    own->transport_ = make_socket_client(*own->loop_, sockets);
    own->thread_ = std::thread([loop = own->loop_.get()] {
      ::pthread_setname_np(::pthread_self(), "precis-client");
      loop->run_lent();
    });
    return own;
  }
  ~OwnLoop() {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
  }
  OwnLoop() = default;
  OwnLoop(const OwnLoop&) = delete;
  OwnLoop& operator=(const OwnLoop&) = delete;

  Runtime& runtime() { return runtime_; }
  EventLoop& loop() { return *loop_; }
  ClientTransport& transport() { return *transport_; }

 private:
  MachineRuntime runtime_;
  const std::unique_ptr<EventLoop> loop_ = runtime_.make_loop();
  std::unique_ptr<ClientTransport> transport_;  // destroyed before the loop, after the thread
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<Client>> Client::connect(const std::string& address,
                                                const ConnectOptions& options) {
  PRECIS_ASSIGN(auto own, OwnLoop::start(options));
  Runtime& runtime = own->runtime();
  EventLoop& loop = own->loop();
  ClientTransport& transport = own->transport();
  return attach(std::move(own), runtime, loop, transport, address, options);
}

}  // namespace precis
