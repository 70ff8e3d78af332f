// The relay between two programs: it must hold back, delay and break, or the torture of clusters
// would find nothing.
#include "tests/torture/relay.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <string>

#include "cachesvc/base/asio.h"

namespace precis::torture {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{50}, kPatience{30'000};

// A connection through a relay, with a program at each end.
struct Line {
  Line() {
    const std::string port = std::to_string(server.local_endpoint().port());
    const std::string at = relay.listen("127.0.0.1:0", "127.0.0.1:" + port);
    const auto number = static_cast<std::uint16_t>(std::stoul(at.substr(at.rfind(':') + 1)));
    near.connect({asio::ip::address_v4::loopback(), number});
  }
  void accept() { server.accept(far); }

  asio::io_context io;
  tcp::acceptor server{io, {asio::ip::address_v4::loopback(), 0}};
  Relay relay;
  tcp::socket near{io}, far{io};
};

// Whether something to read, or the end of the connection, comes within the time.
bool comes(tcp::socket& socket, milliseconds within) {
  pollfd ready{socket.native_handle(), POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(within.count())) == 1;
}

void say(tcp::socket& socket, const std::string& text) { asio::write(socket, asio::buffer(text)); }

// Reads until the text has come, or, for the empty text, the end of the connection.
bool hears(tcp::socket& socket, const std::string& text) {
  std::string heard(text.size() + 1, ' ');
  std::size_t size = 0;
  while (size < text.size() || text.empty()) {
    if (!comes(socket, kPatience)) return false;
    boost::system::error_code error;
    const auto rest = asio::buffer(heard.data() + size, heard.size() - size);
    size += socket.read_some(rest, error);
    if (error) return text.empty();
    if (text.empty()) return false;
  }
  return heard.substr(0, size) == text;
}

}  // namespace

TEST_CASE("a relay passes on bytes and the end of a connection both ways") {
  Line line;
  line.accept();
  say(line.near, "question");
  CHECK(hears(line.far, "question"));
  say(line.far, "answer");
  CHECK(hears(line.near, "answer"));
  line.near.shutdown(tcp::socket::shutdown_send);
  CHECK(hears(line.far, ""));
  say(line.far, "late answer");
  CHECK(hears(line.near, "late answer"));
  line.far.close();
  CHECK(hears(line.near, ""));
}

TEST_CASE("what a relay holds back comes when the partition ends") {
  Line line;
  line.accept();
  const bool there = GENERATE(true, false);
  tcp::socket& held = there ? line.near : line.far;
  tcp::socket& open = there ? line.far : line.near;
  line.relay.hold(there ? Relay::Way::kThere : Relay::Way::kBack);
  say(held, "held");
  say(open, "open");
  CHECK(hears(held, "open"));
  CHECK_FALSE(comes(open, kSoon));
  held.close();
  CHECK_FALSE(comes(open, kSoon));
  line.relay.heal(/*broken=*/false);
  CHECK(hears(open, "held"));
  CHECK(hears(open, ""));
}

TEST_CASE("a relay breaks connections instead, and makes none meanwhile") {
  Line line;
  line.accept();
  line.relay.hold(Relay::Way::kBoth);
  tcp::socket second(line.io);
  second.connect(line.near.remote_endpoint());
  say(line.near, "lost");
  pollfd connecting{line.server.native_handle(), POLLIN, 0};
  CHECK(::poll(&connecting, 1, static_cast<int>(kSoon.count())) == 0);
  CHECK_FALSE(comes(line.far, kSoon));
  line.relay.heal(/*broken=*/true);
  CHECK(hears(line.far, ""));
  CHECK(hears(line.near, ""));
  CHECK(hears(second, ""));
}

TEST_CASE("a relay delays bytes each way") {
  Line line;
  line.accept();
  line.relay.delay(kSoon);
  const auto began = Steady::now();
  say(line.near, "question");
  CHECK(hears(line.far, "question"));
  CHECK(Steady::now() - began >= kSoon);
  say(line.far, "answer");
  CHECK(hears(line.near, "answer"));
  CHECK(Steady::now() - began >= 2 * kSoon);
}

TEST_CASE("a relay breaks a connection if nobody is at its other end") {
  Line line;
  line.accept();
  const auto at = line.near.remote_endpoint();
  line.server.close();
  tcp::socket second(line.io);
  second.connect(at);
  CHECK(hears(second, ""));
}

}  // namespace precis::torture
