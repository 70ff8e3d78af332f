#include "client/src/transport/dial.h"

#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "cachesvc/base/asio.h"
#include "cachesvc/net/address.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Unix = asio::local::stream_protocol;

// Resolves a host's addresses; awaitable. Asio may call back after this object is destroyed.
class Resolution {
 public:
  Resolution(EventLoop& loop, const HostPort& where)
      : resolver_(AsioAccess::context(loop)), where_(where) {}
  ~Resolution() { state_->waiting = nullptr; }
  Resolution(const Resolution&) = delete;
  Resolution& operator=(const Resolution&) = delete;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) {
    state_->waiting = waiting;
    resolver_.async_resolve(where_.host, where_.port,
                            [state = state_](const error_code& error, auto found) {
                              state->error = error;
                              state->found = std::move(found);
                              if (state->waiting) state->waiting.resume();
                            });
  }
  const error_code& error() const { return state_->error; }
  tcp::resolver::results_type await_resume() const { return state_->found; }

 private:
  struct State {  // shared with the pending callback
    std::coroutine_handle<> waiting;
    error_code error;
    tcp::resolver::results_type found;
  };
  tcp::resolver resolver_;
  const HostPort& where_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

template <typename Endpoint>
Task<Result<Descriptor>> connect_to(EventLoop& loop, Endpoint endpoint, std::string name) {
  const int family = endpoint.protocol().family();
  Descriptor made(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = 0;
  if (!made ||
      ::connect(made.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    co_await Readiness(loop, made.get(), /*writable=*/true);
    socklen_t size = sizeof error;
    ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) co_return made;
  co_return to_status(error_code(error, boost::system::system_category()), "connect to " + name);
}

Task<Result<Descriptor>> connect_to_host(EventLoop& loop, HostPort where, std::string name) {
  if (where.number == 0) {
    co_return Status::invalid("address '" + name +
                              "': no service listens on port 0; give the port that precisd printed "
                              "when it was ready");
  }
  Resolution resolution(loop, where);
  const auto endpoints = co_await resolution;
  PRECIS_CO_TRY(to_status(resolution.error(), "resolve " + name));
  Result<Descriptor> made = Status::unavailable("resolve " + name + ": it has no address");
  for (const auto& entry : endpoints) {
    made = co_await connect_to(loop, entry.endpoint(), name);
    if (made.ok()) break;
  }
  co_return made;
}

Task<Result<Descriptor>> connect_to_path(EventLoop& loop, std::string path, std::string name) {
  PRECIS_CO_ASSIGN(const UnixAddress address, unix_address(path));
  co_return co_await connect_to(loop, Unix::endpoint(address.path), name);
}

}  // namespace

Task<Result<std::unique_ptr<GreetingSocket>>> dial(EventLoop& loop, std::string address,
                                                   const TlsContext* tls) {
  std::unique_ptr<Socket> socket;
  if (address.starts_with(kUnixPrefix)) {
    const std::string path = address.substr(std::string_view(kUnixPrefix).size());
    PRECIS_CO_ASSIGN(Descriptor made, co_await connect_to_path(loop, path, address));
    socket = std::make_unique<Socket>(std::move(made));
  } else {
    PRECIS_CO_ASSIGN(const HostPort where, split_address(address));
    PRECIS_CO_ASSIGN(Descriptor made, co_await connect_to_host(loop, where, address));
    socket = tls != nullptr ? tls->wrap(std::move(made), where.host)
                            : std::make_unique<Socket>(std::move(made));
  }
  auto greeting = std::make_unique<GreetingSocket>(loop, std::move(socket));
  const Status shaken = co_await greeting->shake_hands();
  PRECIS_CO_TRY(shaken.with_context(address));
  co_return greeting;
}

}  // namespace precis
