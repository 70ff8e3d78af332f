#include "cachesvc/transport/preface_io.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <utility>

#include "cachesvc/base/asio.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// How long a refused peer may take to read why.
constexpr std::chrono::seconds kLastFrameTimeout{2};

// A host that vanishes sends nothing: after these, its silence counts as its end (25 s).
constexpr int kKeepAliveIdleSeconds = 10;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;

void keep_alive(tcp::socket& socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

struct HostPort {
  std::string host, port;
  std::uint16_t number = 0;  // of the port
};
Result<HostPort> split(const std::string& address) {
  const auto colon = address.rfind(':');
  const bool no_port = colon == std::string::npos || address.ends_with(':') ||
                       address.ends_with(']');  // whose colons are the host's
  if (no_port || colon == 0) {
    return Status::invalid("address '" + address +
                           "' is not of the form host:port, such as 127.0.0.1:7470 or [::1]:7470");
  }
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  const char* const end = parts.port.data() + parts.port.size();
  const auto [stop, error] = std::from_chars(parts.port.data(), end, parts.number);
  if (error != std::errc() || stop != end) {
    return Status::invalid("address '" + address + "': port '" + parts.port +
                           "' must be a number in [0, 65535]");
  }
  if (parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  } else if (parts.host.find('/') != std::string::npos) {
    return Status::invalid("address '" + address +
                           "' must be host:port alone, without a scheme or a path");
  } else if (parts.host.find(':') != std::string::npos) {
    return Status::invalid("address '" + address +
                           "': an IPv6 host stands in brackets, as in [::1]:7470");
  }
  return parts;
}

std::string to_string(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + host + "]:" + port : host + ":" + port;
}

// Who closes a connection has ended it, and made no error.
std::string how_gone(const error_code& error) {
  if (error == asio::error::eof) return "closed the connection";
  return "is gone (" + error.message() + ")";
}

// Of an address to listen on: who chose it must choose another.
Status not_to_be_had(const error_code& error, const std::string& what) {
  Status status = to_status(error, what);
  const bool is_wrong = error == asio::error::invalid_argument ||
                        error == asio::error::host_not_found ||
                        error == asio::error::service_not_found ||
                        error == asio::error::address_in_use || error == asio::error::access_denied;
  return is_wrong ? Status::invalid(status.message()) : status;
}

// The socket and its buffers. Shared by its owner and by the operations under way on it.
class SocketState : public std::enable_shared_from_this<SocketState> {
 public:
  explicit SocketState(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    const auto remote = socket_.remote_endpoint(ignored);
    peer_ = ignored ? "unknown" : to_string(remote);
    keep_alive(socket_);
  }

  void close() {
    on_frame_ = nullptr;
    on_gone_ = nullptr;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);  // whatever copies of it there are
    socket_.close(ignored);
  }

  void unwatch() { on_gone_ = nullptr; }
  int descriptor() { return socket_.native_handle(); }

  void read(std::function<void(Result<preface::Frame>)> done) {
    on_frame_ = std::move(done);
    asio::async_read(socket_, asio::buffer(header_bytes_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       self->on_header(error);
                     });
  }

  void write(preface::Kind kind, Bytes body) {
    outgoing_.push_back(preface::encode_frame(kind, body));
    if (outgoing_.size() == 1) write_next();
  }

  void watch(std::function<void(Status)> gone) {
    on_gone_ = std::move(gone);
    socket_.async_read_some(asio::buffer(header_bytes_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (!self->on_gone_) return;
                              std::exchange(self->on_gone_, nullptr)(
                                  error ? Status::unavailable("the peer " + how_gone(error))
                                        : Status::invalid("the peer sent bytes after its preface"));
                            });
  }

  // Reads and forgets what the peer still sends, until it closes: closing on unread bytes would
  // reset the connection and could destroy the frame on its way out.
  void drain_after_writes() {
    on_frame_ = nullptr;
    closing_ = true;
    if (outgoing_.empty()) drain();
  }

  const std::string& peer() const { return peer_; }

 private:
  void on_header(const error_code& error) {
    if (!on_frame_) return;
    if (error) return finish_read(unread(error));
    auto header = preface::parse_header(header_bytes_);
    if (!header.ok()) return finish_read(header.status());
    header_ = *header;
    body_.resize(header_.body_bytes);
    asio::async_read(socket_, asio::buffer(body_),
                     [self = shared_from_this()](const error_code& failed, std::size_t) {
                       self->on_body(failed);
                     });
  }

  void on_body(const error_code& error) {
    if (!on_frame_) return;
    if (error) return finish_read(unread(error));
    Status status = preface::check_body(header_, body_);
    if (!status.ok()) return finish_read(std::move(status));
    finish_read(preface::Frame{header_.kind, std::move(body_)});
  }

  Status unread(const error_code& error) const {
    if (error == asio::error::eof) return Status::unavailable(peer_ + " " + how_gone(error));
    return to_status(error, "read from " + peer_);
  }

  void finish_read(Result<preface::Frame> frame) {
    std::exchange(on_frame_, nullptr)(std::move(frame));
  }

  void write_next() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error) return;
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) return self->write_next();
                        if (self->closing_) self->drain();
                      });
  }

  void drain() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    drain_next();
  }
  void drain_next() {
    body_.resize(4096);
    socket_.async_read_some(asio::buffer(body_),
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (!error) self->drain_next();
                            });
  }

  tcp::socket socket_;
  std::string peer_;
  std::array<std::byte, preface::kHeaderBytes> header_bytes_{};
  preface::Header header_;
  std::vector<std::byte> body_;
  std::deque<std::vector<std::byte>> outgoing_;
  std::function<void(Result<preface::Frame>)> on_frame_;
  std::function<void(Status)> on_gone_;
  bool closing_ = false;
};

class AsioSocket final : public PrefaceSocket {
 public:
  explicit AsioSocket(tcp::socket socket)
      : state_(std::make_shared<SocketState>(std::move(socket))) {}
  ~AsioSocket() override {
    if (state_) state_->close();
  }
  void read(std::function<void(Result<preface::Frame>)> done) override {
    state_->read(std::move(done));
  }
  void write(preface::Kind kind, Bytes body) override { state_->write(kind, body); }
  void watch(std::function<void(Status)> gone) override { state_->watch(std::move(gone)); }
  void unwatch() override { state_->unwatch(); }
  int descriptor() const override { return state_->descriptor(); }
  std::string peer() const override { return state_->peer(); }
  std::shared_ptr<SocketState> release() { return std::move(state_); }

 private:
  std::shared_ptr<SocketState> state_;
};

class AsioListener final : public PrefaceListener {
 public:
  using OnConnection = std::function<void(std::unique_ptr<PrefaceSocket>)>;

  // Shared by the listener and by the accept under way.
  struct State : std::enable_shared_from_this<State> {
    State(EventLoop& l, OnConnection callback)
        : loop(l), acceptor(AsioAccess::context(l)), on_connection(std::move(callback)) {}

    Status open(const tcp::endpoint& endpoint) {
      error_code error;
      acceptor.open(endpoint.protocol(), error);
      if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor.bind(endpoint, error);
      if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
      return not_to_be_had(error, to_string(endpoint) + " (choose another with --listen)");
    }

    void accept() {
      acceptor.async_accept(
          [self = shared_from_this()](const error_code& error, tcp::socket socket) {
            if (!self->on_connection) return;
            if (error) return self->rest();
            self->accept();
            self->on_connection(std::make_unique<AsioSocket>(std::move(socket)));
          });
    }

    // Out of descriptors, most likely: trying again at once would only spin.
    void rest() {
      pause = loop.after(std::chrono::milliseconds(100), [this] { accept(); });
    }

    EventLoop& loop;
    tcp::acceptor acceptor;
    OnConnection on_connection;
    std::unique_ptr<EventLoop::Timer> pause;
  };

  explicit AsioListener(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~AsioListener() override {
    state_->on_connection = nullptr;
    state_->pause.reset();
    error_code ignored;
    state_->acceptor.close(ignored);
  }
  std::string address() const override {
    error_code ignored;
    return to_string(state_->acceptor.local_endpoint(ignored));
  }

 private:
  std::shared_ptr<State> state_;
};

// Shared by the handle and by the operation under way.
struct ConnectState : std::enable_shared_from_this<ConnectState> {
  using Done = std::function<void(Result<std::unique_ptr<PrefaceSocket>>)>;
  ConnectState(asio::io_context& context, std::string a, Done d)
      : resolver(context), socket(context), address(std::move(a)), done(std::move(d)) {}

  void start(const HostPort& to) {
    resolver.async_resolve(
        to.host, to.port, [self = shared_from_this()](const error_code& error, auto endpoints) {
          if (!self->done) return;
          if (error) return self->finish(error, "resolve ");
          asio::async_connect(self->socket, endpoints,
                              [self](const error_code& failed, const tcp::endpoint&) {
                                self->finish(failed, "connect to ");
                              });
        });
  }

  void finish(const error_code& error, const char* what) {
    const auto call = std::exchange(done, nullptr);
    if (!call) return;
    if (error) return call(to_status(error, what + address));
    call(std::unique_ptr<PrefaceSocket>(std::make_unique<AsioSocket>(std::move(socket))));
  }

  tcp::resolver resolver;
  tcp::socket socket;
  std::string address;
  Done done;
};

class AsioConnect final : public PrefaceConnect {
 public:
  explicit AsioConnect(std::shared_ptr<ConnectState> state) : state_(std::move(state)) {}
  ~AsioConnect() override {
    state_->done = nullptr;
    state_->resolver.cancel();
    error_code ignored;
    state_->socket.close(ignored);
  }

 private:
  std::shared_ptr<ConnectState> state_;
};

}  // namespace

void send_last(EventLoop& loop, std::unique_ptr<PrefaceSocket> socket, preface::Kind kind,
               Bytes body) {
  socket->write(kind, body);
  auto state = static_cast<AsioSocket&>(*socket).release();
  state->drain_after_writes();
  // The timer is shared with its own callback only: it frees itself when it fires.
  auto timer = std::make_shared<std::unique_ptr<EventLoop::Timer>>();
  *timer = loop.after(kLastFrameTimeout, [state, timer]() mutable {
    state->close();
    const auto self = std::move(timer);
  });
}

Result<std::unique_ptr<PrefaceListener>> preface_listen(
    EventLoop& loop, const std::string& address,
    std::function<void(std::unique_ptr<PrefaceSocket>)> on_connection) {
  PRECIS_ASSIGN(const HostPort parts, split(address));
  error_code error;
  tcp::resolver resolver(AsioAccess::context(loop));
  const auto endpoints = resolver.resolve(parts.host, parts.port, tcp::resolver::passive, error);
  PRECIS_TRY(not_to_be_had(error, "resolve " + address));
  // Shared by the listener and by the accept under way.
  auto state = std::make_shared<AsioListener::State>(loop, std::move(on_connection));
  PRECIS_TRY(state->open(endpoints.begin()->endpoint()));
  state->accept();
  return std::unique_ptr<PrefaceListener>(std::make_unique<AsioListener>(std::move(state)));
}

std::unique_ptr<PrefaceConnect> preface_connect(
    EventLoop& loop, const std::string& address,
    std::function<void(Result<std::unique_ptr<PrefaceSocket>>)> done) {
  // Shared by the handle and by the operation under way.
  auto state = std::make_shared<ConnectState>(AsioAccess::context(loop), address, std::move(done));
  auto parts = split(address);
  if (parts.ok() && parts->number == 0) {
    parts = Status::invalid("address '" + address +
                            "': nobody listens on port 0; give the port that precisd said when it "
                            "was ready");
  }
  if (parts.ok()) {
    state->start(*parts);
  } else {
    loop.post([state, status = parts.status()] {
      if (const auto call = std::exchange(state->done, nullptr)) call(status);
    });
  }
  return std::make_unique<AsioConnect>(std::move(state));
}

Status check_address(const std::string& address) { return split(address).status(); }

bool is_loopback(const std::string& address) {
  const auto parts = split(address);
  if (!parts.ok()) return false;
  error_code not_a_number;
  const auto host = asio::ip::make_address(parts->host, not_a_number);
  return not_a_number ? parts->host == "localhost" : host.is_loopback();
}

}  // namespace precis
