#include "client/src/transport/dial.h"

#include <utility>

#include "cachesvc/base/asio.h"
#include "cachesvc/net/address.h"
#include "cachesvc/net/handshake.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Unix = asio::local::stream_protocol;

// Shared by the handle and by the operation under way.
struct DialState : std::enable_shared_from_this<DialState> {
  DialState(EventLoop& l, std::string a, OnDialed d)
      : loop(l),
        resolver(AsioAccess::context(l)),
        tcp_socket(AsioAccess::context(l)),
        unix_socket(AsioAccess::context(l)),
        address(std::move(a)),
        done(std::move(d)) {}

  void start_tcp(const HostPort& to, const TlsContext* context) {
    tls = context != nullptr ? context->session(to.host) : nullptr;
    resolver.async_resolve(
        to.host, to.port, [self = shared_from_this()](const error_code& error, auto endpoints) {
          if (!self->done) return;
          if (error) return self->fail(to_status(error, "resolve " + self->address));
          asio::async_connect(self->tcp_socket, endpoints,
                              [self](const error_code& failed, const tcp::endpoint&) {
                                self->connected(self->tcp_socket, failed);
                              });
        });
  }

  void start_unix(UnixAddress to) {
    directory = std::move(to.directory);
    unix_socket.async_connect(Unix::endpoint(to.path),
                              [self = shared_from_this()](const error_code& failed) {
                                self->connected(self->unix_socket, failed);
                              });
  }

  template <typename AsioSocket>
  void connected(AsioSocket& socket, const error_code& error) {
    if (!done) return;
    if (error) return fail(to_status(error, "connect to " + address));
    error_code failed;
    Descriptor descriptor(socket.release(failed));
    if (failed) return fail(to_status(failed, "connect to " + address));
    handshake = std::make_unique<Handshake>(
        loop, std::make_unique<Socket>(std::move(descriptor), std::move(tls)),
        [self = weak_from_this()](Result<std::unique_ptr<Socket>> shaken) {
          const auto open = self.lock();
          if (!open || !open->done) return;
          if (!shaken.ok()) return open->fail(shaken.status().with_context(open->address));
          std::exchange(open->done, nullptr)(std::move(shaken));
        });
  }

  void fail(const Status& status) {
    if (const auto call = std::exchange(done, nullptr)) call(status);
  }

  EventLoop& loop;
  tcp::resolver resolver;
  tcp::socket tcp_socket;
  Unix::socket unix_socket;
  Descriptor directory;  // of a long path, until connected
  std::unique_ptr<TlsSession> tls;
  std::unique_ptr<Handshake> handshake;
  const std::string address;
  OnDialed done;
};

class DialHandle final : public Dial {
 public:
  explicit DialHandle(std::shared_ptr<DialState> state) : state_(std::move(state)) {}
  ~DialHandle() override {
    state_->done = nullptr;
    state_->handshake.reset();
    state_->resolver.cancel();
    error_code ignored;
    state_->tcp_socket.close(ignored);
    state_->unix_socket.close(ignored);
  }

 private:
  const std::shared_ptr<DialState> state_;
};

}  // namespace

std::unique_ptr<Dial> dial(EventLoop& loop, const std::string& address, const TlsContext* tls,
                           OnDialed done) {
  auto state = std::make_shared<DialState>(loop, address, std::move(done));
  const auto refuse = [&](Status status) {
    loop.post([state, status = std::move(status)] { state->fail(status); });
  };
  if (address.starts_with(kUnixPrefix)) {
    auto path = unix_address(address.substr(std::string_view(kUnixPrefix).size()));
    path.ok() ? state->start_unix(std::move(*path)) : refuse(path.status());
  } else {
    const auto parts = split_address(address);
    if (!parts.ok()) {
      refuse(parts.status());
    } else if (parts->number == 0) {
      refuse(Status::invalid("address '" + address +
                             "': nobody listens on port 0; give the port that precisd said when "
                             "it was ready"));
    } else {
      state->start_tcp(*parts, tls);
    }
  }
  return std::make_unique<DialHandle>(std::move(state));
}

}  // namespace precis
