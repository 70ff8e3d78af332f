#include "cachesvc/transport/acceptor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "cachesvc/base/asio.h"
#include "cachesvc/net/address.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Unix = asio::local::stream_protocol;

// Without descriptors, most likely: another try at once would only spin.
constexpr std::chrono::milliseconds kPause{100};

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + host + "]:" + port : host + ":" + port;
}

// An address to listen on that can't be had is for its chooser to change.
Status not_to_be_had(const error_code& error, const std::string& what) {
  Status status = to_status(error, what);
  const bool is_wrong = error == asio::error::invalid_argument ||
                        error == asio::error::host_not_found ||
                        error == asio::error::service_not_found ||
                        error == asio::error::address_in_use || error == asio::error::access_denied;
  return is_wrong ? Status::invalid(status.message()) : status;
}

// Shared by the listening socket and by the accept under way.
template <typename Protocol>
struct AcceptState : std::enable_shared_from_this<AcceptState<Protocol>> {
  AcceptState(EventLoop& l, OnSocket callback)
      : loop(l), acceptor(AsioAccess::context(l)), on_socket(std::move(callback)) {}

  Status open(const typename Protocol::endpoint& endpoint, const std::string& what) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    return not_to_be_had(error, what);
  }

  void accept() {
    acceptor.async_accept([self = this->shared_from_this()](const error_code& error,
                                                            typename Protocol::socket socket) {
      if (!self->on_socket) return;
      if (error) return self->rest();
      self->accept();
      error_code failed;
      Descriptor descriptor(socket.release(failed));
      if (!failed) self->on_socket(std::move(descriptor));
    });
  }

  void rest() {
    pause = loop.after(kPause, [this] { accept(); });
  }

  void stop() {
    on_socket = nullptr;
    pause.reset();
    error_code ignored;
    acceptor.close(ignored);
  }

  EventLoop& loop;
  typename Protocol::acceptor acceptor;
  OnSocket on_socket;
  std::unique_ptr<EventLoop::Timer> pause;
};

template <typename Protocol>
class Listening final : public ListeningSocket {
 public:
  Listening(std::shared_ptr<AcceptState<Protocol>> state, std::string address, std::string path)
      : state_(std::move(state)), address_(std::move(address)), path_(std::move(path)) {}
  ~Listening() override {
    state_->stop();
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<AcceptState<Protocol>> state_;
  const std::string address_, path_;
};

}  // namespace

Result<std::unique_ptr<ListeningSocket>> listen_tcp(EventLoop& loop, const std::string& address,
                                                    OnSocket on_socket) {
  PRECIS_ASSIGN(const HostPort parts, split_address(address));
  error_code error;
  tcp::resolver resolver(AsioAccess::context(loop));
  const auto endpoints = resolver.resolve(parts.host, parts.port, tcp::resolver::passive, error);
  PRECIS_TRY(not_to_be_had(error, "resolve " + address));
  auto state = std::make_shared<AcceptState<tcp>>(loop, std::move(on_socket));
  const tcp::endpoint endpoint = endpoints.begin()->endpoint();
  PRECIS_TRY(state->open(endpoint, to_text(endpoint) + " (choose another with --listen)"));
  state->accept();
  std::string bound = to_text(state->acceptor.local_endpoint(error));
  return std::unique_ptr<ListeningSocket>(
      std::make_unique<Listening<tcp>>(std::move(state), std::move(bound), ""));
}

Result<std::unique_ptr<ListeningSocket>> listen_unix(EventLoop& loop, const std::string& path,
                                                     OnSocket on_socket) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return Status::invalid("listen_unix '" + path + "' is there already and is no socket");
    }
    ::unlink(path.c_str());
  }
  PRECIS_ASSIGN(const UnixAddress address, unix_address(path));
  auto state = std::make_shared<AcceptState<Unix>>(loop, std::move(on_socket));
  PRECIS_TRY(state->open(Unix::endpoint(address.path), "listen_unix " + path));
  // The token lets in, not the file's mode; its directory may keep others out.
  ::chmod(path.c_str(), 0666);
  state->accept();
  return std::unique_ptr<ListeningSocket>(
      std::make_unique<Listening<Unix>>(std::move(state), path, path));
}

}  // namespace precis
