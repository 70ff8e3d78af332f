#include "tests/torture/relay.h"

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/base/asio.h"
#include "cachesvc/net/address.h"
#include "precis/status.h"

namespace precis::torture {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kPieceBytes = 64u << 10;

tcp::endpoint endpoint_of(const std::string& address) {
  const auto parts = split_address(address).value();
  return {asio::ip::make_address(parts.host), static_cast<std::uint16_t>(parts.number)};
}

class Connection;

// All connections of a relay share this. Used by the relay's thread alone.
struct Network {
  asio::io_context io{1};
  std::array<bool, 2> held{};  // by direction: there, back
  std::chrono::milliseconds delay{0};
  std::vector<std::function<void()>> waiting;  // for the end of a partition
  std::vector<std::weak_ptr<Connection>> connections;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Network& network, tcp::socket from, tcp::endpoint to)
      : network_(network), to_(std::move(to)), sockets_{std::move(from), tcp::socket(network.io)} {}

  void begin() {
    when_open(0, [self = shared_from_this()] {
      self->sockets_[1].async_connect(self->to_, [self](const error_code& error) {
        if (error || !self->sockets_[0].is_open()) return self->end();
        for (auto& socket : self->sockets_) socket.set_option(tcp::no_delay(true));
        for (const std::size_t way : {0, 1}) self->read(way);
      });
    });
  }
  void end() {
    error_code ignored;
    for (auto& socket : sockets_) socket.close(ignored);
  }

 private:
  // Bytes of the way `way` come from sockets_[way].
  void read(std::size_t way) {
    sockets_[way].async_read_some(
        asio::buffer(pieces_[way]),
        [self = shared_from_this(), way](const error_code& error, std::size_t bytes) {
          if (error == asio::error::operation_aborted) return;
          self->after_delay(way, [self, way, error, bytes] { self->pass(way, error, bytes); });
        });
  }
  // Passes on what was read: bytes, the end of the bytes, or that the connection is broken.
  void pass(std::size_t way, const error_code& error, std::size_t bytes) {
    tcp::socket& to = sockets_[1 - way];
    error_code ignored;
    if (error == asio::error::eof) {
      to.shutdown(tcp::socket::shutdown_send, ignored);
    } else if (error) {
      end();
    } else {
      asio::async_write(to, asio::buffer(pieces_[way].data(), bytes),
                        [self = shared_from_this(), way](const error_code& failed, std::size_t) {
                          // If it failed, the read of the other way says so to its side.
                          if (!failed) self->read(way);
                        });
    }
  }
  void after_delay(std::size_t way, std::function<void()> then) {
    if (network_.delay.count() == 0) return when_open(way, std::move(then));
    auto timer = std::make_shared<asio::steady_timer>(network_.io, network_.delay);
    timer->async_wait([self = shared_from_this(), way, timer,
                       next = std::move(then)](const error_code&) { self->when_open(way, next); });
  }
  void when_open(std::size_t way, std::function<void()> then) {
    if (!network_.held[way]) return then();
    network_.waiting.emplace_back(
        [self = shared_from_this(), way, next = std::move(then)] { self->when_open(way, next); });
  }

  Network& network_;
  const tcp::endpoint to_;
  std::array<tcp::socket, 2> sockets_;
  std::array<std::array<char, kPieceBytes>, 2> pieces_;
};

// Takes the connections to one address.
class Entrance {
 public:
  Entrance(Network& network, const tcp::endpoint& at, tcp::endpoint to)
      : network_(network), to_(std::move(to)), acceptor_(network.io, at) {
    accept();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        const auto made = std::make_shared<Connection>(network_, std::move(socket), to_);
        std::erase_if(network_.connections, [](const auto& old) { return old.expired(); });
        network_.connections.push_back(made);
        made->begin();
      }
      accept();
    });
  }

  Network& network_;
  const tcp::endpoint to_;
  tcp::acceptor acceptor_;
};

}  // namespace

struct Relay::Impl {
  // Runs `act` on the relay's thread, and waits for its end.
  void on_thread(const std::function<void()>& act) {
    std::promise<void> done;
    asio::post(network.io, [&] {
      act();
      done.set_value();
    });
    done.get_future().wait();
  }

  Network network;
  std::vector<std::unique_ptr<Entrance>> entrances;
  asio::executor_work_guard<asio::io_context::executor_type> work{network.io.get_executor()};
  std::thread thread{[this] { network.io.run(); }};
};

Relay::Relay() : impl_(std::make_unique<Impl>()) {}

Relay::~Relay() {
  impl_->network.io.stop();
  impl_->thread.join();
  impl_->network.waiting.clear();  // it owns connections, whose sockets need the io_context
}

std::string Relay::listen(const std::string& at, const std::string& to) {
  std::uint16_t port = 0;
  impl_->on_thread([&] {
    impl_->entrances.push_back(
        std::make_unique<Entrance>(impl_->network, endpoint_of(at), endpoint_of(to)));
    port = impl_->entrances.back()->port();
  });
  return at.substr(0, at.rfind(':') + 1) + std::to_string(port);
}

void Relay::hold(Way way) {
  impl_->on_thread([&] { impl_->network.held = {way != Way::kBack, way != Way::kThere}; });
}

void Relay::delay(std::chrono::milliseconds time) {
  impl_->on_thread([&] { impl_->network.delay = time; });
}

void Relay::heal(bool broken) {
  impl_->on_thread([&] {
    Network& network = impl_->network;
    network.held = {};
    network.delay = {};
    const auto waiting = std::exchange(network.waiting, {});
    if (broken) {
      for (const auto& each : std::exchange(network.connections, {})) {
        if (const auto connection = each.lock()) connection->end();
      }
    } else {
      for (const auto& go_on : waiting) go_on();
    }
  });
}

}  // namespace precis::torture
