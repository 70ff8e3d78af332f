#include "client/src/transport/socket_client.h"

#include <algorithm>
#include <list>
#include <utility>

#include "cachesvc/net/control_stream.h"
#include "client/src/transport/client_memory.h"
#include "client/src/transport/login_attempt.h"
#include "client/src/transport/socket_client_connection.h"

namespace precis {
namespace {

class SocketClient final : public ClientTransport {
 public:
  SocketClient(EventLoop& loop, const SocketClientOptions& options)
      : loop_(loop), options_(options) {
    loop_.spin_for(options.spin);
  }
  ~SocketClient() override {
    attempts_.clear();
    links_.end_all();
  }

  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    return std::unique_ptr<Registration>(std::make_unique<ClientMemory>(memory, options_.rdma));
  }

  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    auto pages = options_.share_memory ? Pages::make_shared(std::max(size_bytes, Pages::kUnitBytes))
                                       : Pages::make_private(size_bytes);
    if (pages.status().code() == StatusCode::kUnsupported) pages = Pages::make_private(size_bytes);
    PRECIS_TRY(pages.status());
    return std::unique_ptr<Registration>(
        std::make_unique<ClientMemory>(std::move(*pages), options_.rdma));
  }

  void connect(const std::string& address, const Login& login, std::uint32_t timeout_ms,
               std::function<void(Result<Connected>)> done) override {
    const auto place = attempts_.emplace(attempts_.end());
    *place = std::make_unique<LoginAttempt>(
        loop_,
        LoginAttempt::Options{address, login, timeout_ms, options_.tls.get(),
                              options_.share_memory},
        [this, place, done = std::move(done)](Result<LoginAttempt::Admitted> admitted) {
          const auto over = std::move(*place);  // keeps the attempt alive until its callback ends
          attempts_.erase(place);
          done(connected(std::move(admitted)));
        });
  }

 private:
  Result<Connected> connected(Result<LoginAttempt::Admitted> admitted) {
    PRECIS_TRY(admitted.status());
    Connected result;
    result.welcome = std::move(admitted->welcome);
    if (!result.welcome.status.ok()) return result;
    const std::string kind = admitted->data->kind();
    auto data = std::make_shared<DataStream>(loop_, std::move(admitted->data));
    auto link = std::make_unique<SocketClientConnection>(
        loop_, std::make_shared<ControlStream>(loop_, std::move(admitted->control)),
        std::make_shared<ClientRegions>(loop_, std::move(data)), kind);
    link->open(result.welcome.rdma ? options_.rdma : nullptr);
    links_.add(*link);
    result.connection = std::move(link);
    return result;
  }

  EventLoop& loop_;
  const SocketClientOptions options_;
  std::list<std::unique_ptr<LoginAttempt>> attempts_;
  Links<SocketClientConnection> links_;
};

}  // namespace

std::unique_ptr<ClientTransport> make_socket_client(EventLoop& loop,
                                                    const SocketClientOptions& options) {
  return std::make_unique<SocketClient>(loop, options);
}

}  // namespace precis
