// Client::connect(): a loop, its thread and a UCX transport for one connection.
#include <pthread.h>

#include <thread>

#include "cachesvc/transport/ucx_transport.h"
#include "client/src/attach.h"

namespace precis {
namespace {

class OwnLoop {
 public:
  static Result<std::shared_ptr<OwnLoop>> start(const std::string& address) {
    auto own = std::make_shared<OwnLoop>();  // shared: what attach() keeps alive
    UcxOptions options;
    options.address = address;
    PRECIS_ASSIGN(own->transport_, make_ucx_transport(own->loop_, options));
    own->thread_ = std::thread([loop = &own->loop_] {
      ::pthread_setname_np(::pthread_self(), "precis-client");
      loop->run_lent();
    });
    return own;
  }
  ~OwnLoop() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
  }
  OwnLoop() = default;
  OwnLoop(const OwnLoop&) = delete;
  OwnLoop& operator=(const OwnLoop&) = delete;

  EventLoop& loop() { return loop_; }
  Transport& transport() { return *transport_; }

 private:
  EventLoop loop_;
  std::unique_ptr<Transport> transport_;  // goes before the loop, after the loop's thread
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<Client>> Client::connect(const std::string& address,
                                                const ConnectOptions& options) {
  PRECIS_ASSIGN(auto own, OwnLoop::start(address));
  EventLoop& loop = own->loop();
  Transport& transport = own->transport();
  return attach(std::move(own), loop, transport, address, options);
}

}  // namespace precis
