// Connecting when the peer misbehaves or time runs out, at every step.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "cachesvc/net/address.h"
#include "cachesvc/transport/acceptor.h"
#include "precis/frames.h"
#include "precis/limits.h"
#include "tests/unit/transport/certificate.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("attempts cut short at any moment do not stand in the way of the next", "[transport]") {
  const Wire wire = GENERATE(Wire::kUnix, Wire::kTcp, Wire::kTls);
  CAPTURE(wire_name(wire));
  Server server(wire);
  Caller client(wire);
  std::vector<ServerEnd> at_server;
  const std::string address =
      listen(server, wire, open_door([&](std::unique_ptr<Connection> connection) {
               at_server.emplace_back(server.thread, std::move(connection));
             }));
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    // The server's loop sleeps for up to 3 ms at some step; the client waits at most 1 ms.
    const auto still = std::chrono::microseconds(random() % 3000);
    server.thread.loop.post([still] { std::this_thread::sleep_for(still); });
    auto cut = connect(client, address, {}, 1);
    if (!cut.ok()) CHECK(cut.status().code() == StatusCode::kTimedOut);
    if (cut.ok()) CallerEnd(client.thread, std::move(cut->connection)).drop();
    auto connected = connect(client, address);
    REQUIRE(connected.status().to_string() == "ok");
    CallerEnd at_client(client.thread, std::move(connected->connection));
    at_client.start();
    at_client.send(bytes_of("hello"));
    server.thread.on_loop([] {});
    ServerEnd& last = at_server.back();
    last.start();
    CHECK(text_of(last.inbox().wait_messages(1)[0]) == "hello");
  }
}

// A plain socket that sends bytes to a service and receives its answers.
class Plain {
 public:
  // Connects from 127.`net`.0.1.
  explicit Plain(const std::string& address, std::uint32_t net = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(split_address(address).value().number);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (net << 16));
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    REQUIRE(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  bool is_open() const {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
  }
  void say(Bytes bytes) {
    static_cast<void>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void say(FrameKind kind, Bytes body) {
    say(encode_frame_header({kind, static_cast<std::uint32_t>(body.size()), 0}));
    say(body);
  }
  // Receives everything until the service closes.
  std::vector<std::byte> hear_out() {
    std::vector<std::byte> all;
    for (;;) {
      std::array<std::byte, 4096> some;
      const ssize_t got = ::recv(socket_.get(), some.data(), some.size(), 0);
      if (got <= 0) return all;
      all.insert(all.end(), some.begin(), some.begin() + got);
    }
  }
  // The body of the next frame, which must have this kind.
  std::vector<std::byte> hear_frame(FrameKind kind) {
    const FrameHeader header = decode_frame_header(hear(FrameHeader::kBytes)).value();
    REQUIRE(header.kind == kind);
    return hear(header.size_bytes);
  }
  // The challenge with which a service begins.
  Challenge challenge() { return decode_challenge(hear_frame(FrameKind::kChallenge)).value(); }

 private:
  std::vector<std::byte> hear(std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size == 0) return bytes;
    REQUIRE(::recv(socket_.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
    return bytes;
  }
  Descriptor socket_;
};

// The refusal that follows the challenge.
Welcome refusal(Bytes heard) {
  const std::size_t challenge = FrameHeader::kBytes + encode(Challenge{}).size();
  REQUIRE(heard.size() > challenge + FrameHeader::kBytes);
  const Bytes rest = heard.subspan(challenge);
  CHECK(decode_frame_header(rest.first(FrameHeader::kBytes))->kind == FrameKind::kRefusal);
  return decode_welcome(rest.subspan(FrameHeader::kBytes)).value();
}

TEST_CASE("what is no greeting is refused or dropped, and disturbs nobody", "[transport]") {
  Pair pair(Wire::kTcp);
  std::mt19937_64 random(7);
  SECTION("garbage") {
    for (int round = 0; round < 50; ++round) {
      Plain plain(pair.address);
      plain.say(random_bytes(random, 16 + random() % 200));
      plain.hear_out();
    }
  }
  SECTION("a frame that is larger than a greeting may be") {
    Plain plain(pair.address);
    plain.say(encode_frame_header({FrameKind::kHello, limits::kHelloBytesMax + 1, 0}));
    plain.hear_out();
  }
  SECTION("a message before a greeting") {
    Plain plain(pair.address);
    plain.say(FrameKind::kMessage, bytes_of("let me in"));
    CHECK(refusal(plain.hear_out()).status.code() == StatusCode::kInvalidArgument);
  }
  SECTION("a hello that does not decode") {
    Plain plain(pair.address);
    plain.say(FrameKind::kHello, random_bytes(random, 100));
    CHECK(refusal(plain.hear_out()).status.code() == StatusCode::kInvalidArgument);
  }
  pair.at_client.send(bytes_of("still here"));
  CHECK(text_of(pair.at_server.inbox().wait_messages(1)[0]) == "still here");
}

TEST_CASE("a bulk socket is bound by its client alone, and once", "[transport]") {
  Pair pair(Wire::kTcp);
  auto accepted = pair.accept_next();
  Plain control(pair.address);
  const Nonce challenge = control.challenge().nonce;
  Hello hello{kProtocolVersion, "test", "", make_nonce(), {}};
  hello.proof = client_proof("", challenge, hello);
  control.say(FrameKind::kHello, encode(hello));
  const Welcome welcome = decode_welcome(control.hear_frame(FrameKind::kWelcome)).value();
  const ServerEnd at_server(pair.server.thread, get(std::move(accepted)));
  const std::uint64_t own = welcome.connection;
  const Proof key = bind_key("", challenge, hello, welcome);
  const auto bind = [&](std::uint64_t connection, const Proof& by) {
    auto socket = std::make_unique<Plain>(pair.address);
    const Nonce nonce = socket->challenge().nonce;
    socket->say(FrameKind::kBind, encode(Bind{connection, bind_proof(by, nonce, connection)}));
    return socket;
  };
  const auto is_refused = [&](std::uint64_t connection, const Proof& by) {
    const auto told = decode_welcome(bind(connection, by)->hear_frame(FrameKind::kRefusal));
    return told->status == Status::denied("no connection accepts this Bind");
  };
  CHECK(is_refused(own, {}));
  CHECK(is_refused(own - 1, key));  // the pair's
  CHECK(is_refused(own + 1, key));
  CHECK(is_refused(~std::uint64_t{0}, key));
  {
    Plain stale(pair.address);
    stale.challenge();
    stale.say(FrameKind::kBind, encode(Bind{own, bind_proof(key, make_nonce(), own)}));
    stale.hear_frame(FrameKind::kRefusal);
  }
  const auto bulk = bind(own, key);
  bulk->hear_frame(FrameKind::kBound);
  CHECK(is_refused(own, key));
  CHECK(bulk->is_open());
}

TEST_CASE("silent strangers keep nobody out", "[transport]") {
  Pair pair(Wire::kTcp);
  std::vector<std::unique_ptr<Plain>> silent;
  for (std::uint32_t i = 0; i < limits::kPendingConnectionsMax + 200; ++i) {
    silent.push_back(std::make_unique<Plain>(pair.address));
    if (i % 50 != 0) continue;
    auto again = pair.connect_again();
    again.second.send(bytes_of("hello"));
    CHECK(text_of(again.first.inbox().wait_messages(1)[0]) == "hello");
  }
}

TEST_CASE("of many addresses with one stranger each, the oldest makes room", "[transport]") {
  Pair pair(Wire::kTcp);
  std::vector<std::unique_ptr<Plain>> silent;
  for (std::uint32_t net = 1; net < limits::kPendingConnectionsMax; ++net) {
    silent.push_back(std::make_unique<Plain>(pair.address, net));
    silent.back()->challenge();
  }
  Plain last(pair.address);
  last.challenge();
  const Plain one_more(pair.address, limits::kPendingConnectionsMax);
  silent.front()->hear_out();  // until it ends
  CHECK(last.is_open());
}

TEST_CASE("a stranger's time is bounded", "[transport]") {
  SocketOptions options = Server::default_options();
  options.greeting_timeout = std::chrono::milliseconds(50);
  Pair pair(Wire::kTcp, options);
  Plain plain(pair.address);
  plain.say(encode_frame_header({FrameKind::kHello, 100, 0}));
  plain.hear_out();  // until it ends
}

TEST_CASE("a server of another version is told apart, and so is no server at all", "[transport]") {
  Caller client(Wire::kTcp);
  Server other(Wire::kTcp);
  std::vector<std::byte> says;
  StatusCode code{};
  std::tie(says, code) = GENERATE_COPY(table<std::vector<std::byte>, StatusCode>({
      {encode(Challenge{kProtocolVersion + 1, {}}), StatusCode::kVersionMismatch},
      {bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"), StatusCode::kInvalidArgument},
  }));
  Descriptor socket;
  auto listening = other.thread.on_loop([&] {
    return listen_tcp(other.thread.loop, "127.0.0.1:0",
                      [&](Descriptor accepted) {
                        socket = std::move(accepted);
                        const auto header = encode_frame_header(
                            {FrameKind::kChallenge, static_cast<std::uint32_t>(says.size()), 0});
                        ::send(socket.get(), header.data(), header.size(), 0);
                        ::send(socket.get(), says.data(), says.size(), 0);
                      })
        .value();
  });
  CHECK(connect(client, listening->address()).status().code() == code);
  other.thread.on_loop([&] { listening.reset(); });
}

TEST_CASE("a client trusts no server but one that its authority has signed", "[transport]") {
  Pair pair(Wire::kTls);
  SECTION("another authority") {
    Caller client(Wire::kTcp);
    SocketClientOptions options;
    options.tls = TlsContext::for_client({"", "", "system"}).value();
    client.thread.on_loop(
        [&] { client.transport = make_socket_client(client.thread.loop, options); });
    const Status status = connect(client, pair.address).status();
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Catch::Contains("certificate"));
  }
  SECTION("with mutual TLS, a client without a certificate") {
    SocketOptions options = Server::default_options();
    options.tls = TlsContext::for_server(test_certificate()).value();
    Server strict(Wire::kTcp, nullptr, options);
    std::vector<ServerEnd> guests;
    const std::string address =
        listen(strict, Wire::kTcp, open_door([&](std::unique_ptr<Connection> connection) {
                 guests.emplace_back(strict.thread, std::move(connection));
               }));
    CHECK_THAT(connect(pair.client, address).status().message(),
               Catch::Contains("give tls_cert and tls_key"));
    Caller known(Wire::kTcp);
    SocketClientOptions with;
    with.tls = TlsContext::for_client(test_certificate()).value();
    known.thread.on_loop([&] { known.transport = make_socket_client(known.thread.loop, with); });
    CHECK(connect(known, address).status().to_string() == "ok");
  }
}

// A service with mutual TLS, and its reports of refused clients.
struct Strict {
  Strict() {
    options.tls = TlsContext::for_server(test_certificate()).value();
    server = std::make_unique<Server>(Wire::kTcp, nullptr, options);
    Transport::Acceptor acceptor = open_door([this](std::unique_ptr<Connection> connection) {
      guests.emplace_back(server->thread, std::move(connection));
    });
    acceptor.refused = [this](const std::string&, const Status& why) { told.push_back(why); };
    address = listen(*server, Wire::kTcp, std::move(acceptor));
  }
  // The reports so far. Connects another client first, so that the loop has handled all earlier
  // events.
  std::vector<Status> told_by_now() {
    Caller known(Wire::kTcp);
    SocketClientOptions with;
    with.tls = TlsContext::for_client(test_certificate()).value();
    known.thread.on_loop([&] { known.transport = make_socket_client(known.thread.loop, with); });
    CHECK(connect(known, address).status().to_string() == "ok");
    return server->thread.on_loop([&] { return told; });
  }
  SocketOptions options = Server::default_options();
  std::vector<Status> told;  // used on the loop
  std::unique_ptr<Server> server;
  std::vector<ServerEnd> guests;
  std::string address;
};

TEST_CASE("whom mutual TLS refuses is told of, and who merely leaves is not", "[transport]") {
  Strict strict;
  SECTION("without a certificate") {
    Caller client(Wire::kTls);
    CHECK_FALSE(connect(client, strict.address).ok());
    CHECK(strict.told_by_now() == std::vector{Status::denied("TLS: it showed no certificate")});
  }
  SECTION("with a certificate of another authority") {
    const std::string folder = "/tmp/precis-other-" + std::to_string(::getpid());
    std::filesystem::create_directory(folder);
    TlsFiles other = make_certificate(folder);
    other.ca = test_certificate().ca;
    Caller client(Wire::kTcp);
    SocketClientOptions options;
    options.tls = TlsContext::for_client(other).value();
    client.thread.on_loop(
        [&] { client.transport = make_socket_client(client.thread.loop, options); });
    CHECK_FALSE(connect(client, strict.address).ok());
    const std::vector<Status> told = strict.told_by_now();
    REQUIRE(told.size() == 1);
    CHECK(told[0].code() == StatusCode::kPermissionDenied);
    CHECK_THAT(told[0].message(), Catch::StartsWith("TLS: ") && Catch::Contains("certificate"));
    std::filesystem::remove_all(folder);
  }
  SECTION("what is no TLS") {
    Plain plain(strict.address);
    plain.say(bytes_of("GET / HTTP/1.1\r\n\r\n"));
    plain.hear_out();
    const std::vector<Status> told = strict.told_by_now();
    CHECK(told == std::vector{Status::invalid("TLS: it does not speak TLS")});
  }
  SECTION("leaving at once, within a record, and for the server's certificate") {
    { const Plain silent(strict.address); }
    { Plain(strict.address).say(bytes_of("\x16\x03\x01")); }
    Caller client(Wire::kTcp);
    SocketClientOptions options;
    options.tls = TlsContext::for_client({"", "", "system"}).value();
    client.thread.on_loop(
        [&] { client.transport = make_socket_client(client.thread.loop, options); });
    CHECK_FALSE(connect(client, strict.address).ok());
    CHECK(strict.told_by_now().empty());
  }
}

TEST_CASE("where one side alone speaks TLS, both say so", "[transport]") {
  SECTION("the client does not") {
    SocketOptions options = Server::default_options();
    options.greeting_timeout = std::chrono::milliseconds(50);
    Pair pair(Wire::kTls, options);
    Caller plain(Wire::kTcp);
    const Status status = connect(plain, pair.address).status();
    CHECK(status.code() == StatusCode::kUnavailable);
    CHECK_THAT(status.message(), Catch::Contains("if the service wants TLS, give tls_ca"));
  }
  SECTION("the service does not") {
    Pair pair(Wire::kTcp);
    Caller client(Wire::kTls);
    CHECK(connect(client, pair.address).status() ==
          Status::unavailable(pair.address +
                              ": TLS: the service does not speak TLS: leave out tls_ca"));
  }
}

TEST_CASE("loopback addresses are known as such", "[transport]") {
  for (const char* address : {"127.0.0.1:7470", "127.9.9.9:1", "[::1]:0", "localhost:1"}) {
    CHECK(is_loopback(address));
  }
  for (const char* address : {"10.0.0.1:7470", "0.0.0.0:1", "[::]:1", "example:1", "", "1"}) {
    CHECK_FALSE(is_loopback(address));
  }
}

TEST_CASE("a Unix socket that is served is taken from nobody, and one that is left is replaced",
          "[transport]") {
  const std::string path = "/tmp/precis-socket-" + std::to_string(::getpid());
  LoopThread thread;
  const auto listen_at_path = [&] {
    return thread.on_loop([&] { return listen_unix(thread.loop, path, [](Descriptor) {}); });
  };
  const auto stop = [&](std::unique_ptr<ListeningSocket> listening) {
    thread.on_loop([&] { listening.reset(); });
  };
  auto first = listen_at_path();
  REQUIRE(first.status().to_string() == "ok");
  CHECK(
      listen_at_path().status() ==
      Status::invalid("listen_unix " + path + ": another process serves it; choose another path"));
  CHECK(std::filesystem::is_socket(path));
  // The file is removed, and another service takes the path.
  std::filesystem::remove(path);
  auto second = listen_at_path();
  REQUIRE(second.status().to_string() == "ok");
  stop(std::move(*first));
  CHECK(std::filesystem::is_socket(path));
  const std::string left = path + "-left";
  std::filesystem::create_hard_link(path, left);
  stop(std::move(*second));
  CHECK_FALSE(std::filesystem::exists(path));
  std::filesystem::rename(left, path);  // as a killed service leaves it
  auto third = listen_at_path();
  REQUIRE(third.status().to_string() == "ok");
  stop(std::move(*third));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a socket path longer than the kernel takes works all the same", "[transport]") {
  const std::string folder = "/tmp/precis-" + std::string(150, 'p') + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  SocketOptions options = Server::default_options();
  options.listen_unix = folder + "/socket";
  Server server(Wire::kTcp, nullptr, options);
  std::promise<std::unique_ptr<Connection>> accepted;
  const std::string address =
      listen(server, Wire::kTcp, open_door([&](std::unique_ptr<Connection> connection) {
               accepted.set_value(std::move(connection));
             }));
  Caller client(Wire::kTcp);
  auto connected = connect(client, "unix:" + options.listen_unix);
  REQUIRE(connected.status().to_string() == "ok");
  const CallerEnd at_client(client.thread, std::move(connected->connection));
  ServerEnd at_server(server.thread, get(accepted.get_future()));
  CHECK(at_server.description() == "unix (shared, stream)");
  at_server.drop();
  server.thread.on_loop([&] { server.transport->stop_listening(); });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace precis::test
