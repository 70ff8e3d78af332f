#include "cachesvc/transport/acceptor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "cachesvc/base/asio.h"
#include "cachesvc/net/address.h"
#include "cachesvc/net/socket.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Unix = asio::local::stream_protocol;

// The pause after an accept error, most likely a lack of descriptors. An immediate retry would
// spin.
constexpr std::chrono::milliseconds kPause{100};

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + host + "]:" + port : host + ":" + port;
}

// Reports a listen address that cannot be used as kInvalidArgument: the operator must change it.
Status not_to_be_had(const error_code& error, const std::string& what) {
  Status status = to_status(error, what);
  const bool is_wrong = error == asio::error::invalid_argument ||
                        error == asio::error::host_not_found ||
                        error == asio::error::service_not_found ||
                        error == asio::error::address_in_use || error == asio::error::access_denied;
  return is_wrong ? Status::invalid(status.message()) : status;
}

template <typename Endpoint>
Result<Descriptor> open_listening(const Endpoint& endpoint, const std::string& what) {
  const int family = endpoint.protocol().family();
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool is_open =
      socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      ::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0;
  if (is_open) return socket;
  return not_to_be_had(error_code(errno, boost::system::system_category()), what);
}

struct stat at_path(const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0) there = {};
  return there;
}

// Returns whether no process listens on the socket at this path: only such a socket refuses a
// connection.
bool is_left(const UnixAddress& address) {
  const Unix::endpoint endpoint(address.path);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return ::connect(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 &&
         errno == ECONNREFUSED;
}

class Listening final : public ListeningSocket {
 public:
  Listening(EventLoop& loop, Descriptor socket, std::string address, OnSocket on_socket)
      : loop_(loop),
        socket_(std::move(socket)),
        address_(std::move(address)),
        made_(at_path(address_)),
        on_socket_(std::move(on_socket)) {
    watch();
  }
  ~Listening() override {
    const struct stat now = at_path(address_);
    const bool is_ours = now.st_ino == made_.st_ino && now.st_dev == made_.st_dev;
    if (address_.starts_with('/') && is_ours) ::unlink(address_.c_str());
  }
  const std::string& address() const override { return address_; }

 private:
  void watch() {
    watch_ = loop_.watch_readable(socket_.get(), [this] { accept(); });
  }

  void accept() {
    Descriptor accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted) return on_socket_(std::move(accepted));
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
    watch_.reset();
    pause_ = loop_.after(kPause, [this] { watch(); });
  }

  EventLoop& loop_;
  const Descriptor socket_;
  const std::string address_;
  const struct stat made_;  // identifies our socket at a Unix socket's path
  const OnSocket on_socket_;
  std::unique_ptr<EventLoop::Watch> watch_;
  std::unique_ptr<EventLoop::Timer> pause_;
};

}  // namespace

Result<std::unique_ptr<ListeningSocket>> listen_tcp(EventLoop& loop, const std::string& address,
                                                    OnSocket on_socket) {
  PRECIS_ASSIGN(const HostPort parts, split_address(address));
  error_code error;
  tcp::resolver resolver(AsioAccess::context(loop));
  const auto endpoints = resolver.resolve(parts.host, parts.port, tcp::resolver::passive, error);
  PRECIS_TRY(not_to_be_had(error, "resolve " + address));
  tcp::endpoint endpoint = endpoints.begin()->endpoint();
  PRECIS_ASSIGN(Descriptor socket,
                open_listening(endpoint, to_text(endpoint) + " (choose another with --listen)"));
  auto size = static_cast<socklen_t>(endpoint.capacity());
  PRECIS_CHECK(::getsockname(socket.get(), endpoint.data(), &size) == 0);
  return std::unique_ptr<ListeningSocket>(std::make_unique<Listening>(
      loop, std::move(socket), to_text(endpoint), std::move(on_socket)));
}

Result<std::unique_ptr<ListeningSocket>> listen_unix(EventLoop& loop, const std::string& path,
                                                     OnSocket on_socket) {
  PRECIS_ASSIGN(const UnixAddress address, unix_address(path));
  if (const struct stat there = at_path(path); there.st_ino != 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return Status::invalid("listen_unix '" + path +
                             "' exists and is not a socket; remove it, or choose another path");
    }
    if (!is_left(address)) {
      return Status::invalid("listen_unix " + path +
                             ": another process serves it; choose another path");
    }
    ::unlink(path.c_str());
  }
  PRECIS_ASSIGN(Descriptor socket,
                open_listening(Unix::endpoint(address.path), "listen_unix " + path));
  let_pass_descriptors(socket.get(), false);  // until a client binds it (pending_connections.cc)
  // The token protects the socket, not the file's mode. The directory's mode may exclude other
  // users.
  ::chmod(path.c_str(), 0666);
  return std::unique_ptr<ListeningSocket>(
      std::make_unique<Listening>(loop, std::move(socket), path, std::move(on_socket)));
}

}  // namespace precis
