// The contract of transport.h over every wire: greeting, and control messages.
#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("a connection begins with a login that the server can prove", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Server server(wire, net);
  Caller client(wire, net);
  std::promise<std::string> greeted, accepted;
  bool proved = false, travelled = true;
  ServerEnd at_server;
  const std::string address =
      listen(server, wire,
             {.greet =
                  [&](const Transport::LoginAttempt& attempt) {
                    proved = client_proof("secret", attempt.challenge, attempt.hello) ==
                             attempt.hello.proof;
                    const auto said = encode(attempt.hello);
                    travelled = text_of(said).find("secret") != std::string::npos;
                    greeted.set_value(attempt.hello.tenant + " " + attempt.hello.client);
                    return Transport::Greeting{{}, "the server", "secret"};
                  },
              .accepted =
                  [&](std::unique_ptr<Connection> connection, const Hello& hello) {
                    at_server = ServerEnd(server.thread, std::move(connection));
                    accepted.set_value(hello.tenant);
                  }});
  auto connected = connect(client, address, {"it is me", "red", "secret"});
  REQUIRE(connected.ok());
  CHECK(connected->welcome.status == Status());
  const CallerEnd at_client(client.thread, std::move(connected->connection));
  CHECK(connected->welcome.server == "the server");
  CHECK(get(greeted.get_future()) == "red it is me");
  CHECK(get(accepted.get_future()) == "red");
  CHECK(proved);
  CHECK_FALSE(travelled);
  CHECK_FALSE(at_server.description().empty());
}

TEST_CASE("a refused peer is told why and gets no connection", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Server server(wire, net);
  Caller client(wire, net);
  bool accepted = false;
  const std::string address =
      listen(server, wire,
             {.greet =
                  [](const Transport::LoginAttempt&) {
                    return Transport::Greeting{Status::rejected("not you", 250), "the server", ""};
                  },
              .accepted = [&](std::unique_ptr<Connection>, const Hello&) { accepted = true; }});
  auto connected = connect(client, address);
  REQUIRE(connected.ok());
  CHECK(connected->connection == nullptr);
  CHECK(connected->welcome.status == Status::rejected("not you", 250));
  CHECK_FALSE(server.thread.on_loop([&] { return accepted; }));
}

TEST_CASE("a server that does not know the token is found out", "[transport]") {
  const Wire wire = GENERATE(Wire::kUnix, Wire::kTcp, Wire::kTls);
  const std::string token = GENERATE("another", "");
  CAPTURE(wire_name(wire), token);
  Server server(wire);
  Caller client(wire);
  const std::string address =
      listen(server, wire,
             {.greet =
                  [&](const Transport::LoginAttempt&) {
                    return Transport::Greeting{{}, "an impostor", token};
                  },
              .accepted = [](std::unique_ptr<Connection>, const Hello&) {}});
  CHECK(connect(client, address, {"me", "red", "secret"}).status().code() ==
        StatusCode::kPermissionDenied);
}

TEST_CASE("connecting where nobody listens is unavailable", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Server server(wire, net);
  Caller client(wire, net);
  const std::string address = listen(server, wire, {});
  server.thread.on_loop([&] { server.transport->stop_listening(); });
  CHECK(connect(client, address).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("messages arrive whole, in order, both ways", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  std::mt19937_64 random(7);
  Pair pair(wire);
  std::vector<std::vector<std::byte>> sent;
  for (int i = 0; i < 300; ++i) {
    // Empty, small, and larger than one system call reads.
    const std::size_t sizes[] = {0, 1 + random() % 64, random() % 9000, random() % 600'000};
    sent.push_back(random_bytes(random, sizes[random() % 4]));
  }
  for (const auto& message : sent) {
    pair.at_client.send(message);
    pair.at_server.send(message);
  }
  CHECK(pair.at_server.inbox().wait_messages(sent.size()) == sent);
  CHECK(pair.at_client.inbox().wait_messages(sent.size()) == sent);
}

TEST_CASE("messages wait for start()", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Server server(wire, net);
  Caller client(wire, net);
  const std::string address = listen(
      server, wire, open_door([&](std::unique_ptr<Connection> connection) {
        // The handlers share ownership, so that the connection lives until the peer has closed.
        auto held = std::shared_ptr<Connection>(std::move(connection));
        held->send(bytes_of("one"));
        held->send(bytes_of("two"));
        held->start({.on_message = [](std::vector<std::byte>) {}, .on_closed = [held](Status) {}});
      }));
  auto connected = connect(client, address);
  REQUIRE(connected.ok());
  CallerEnd at_client(client.thread, std::move(connected->connection));
  CHECK(at_client.inbox().message_count() == 0);
  at_client.start();
  const auto messages = at_client.inbox().wait_messages(2);
  CHECK(text_of(messages[0]) == "one");
  CHECK(text_of(messages[1]) == "two");
}

TEST_CASE("a message of the largest size arrives", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  std::vector<std::byte> message(limits::kMessageBytesMax, std::byte{0x5a});
  message.back() = std::byte{0x17};
  pair.at_client.send(message);
  CHECK((pair.at_server.inbox().wait_messages(1)[0] == message));
}

TEST_CASE("a larger message ends the connection with a reason", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  pair.at_client.send(std::vector<std::byte>(limits::kMessageBytesMax + 1));
  const Status own = pair.at_client.inbox().wait_closed();
  CHECK(own.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(own.message(), Catch::Contains("this side's message of "));
  CHECK_FALSE(pair.at_server.inbox().wait_closed().ok());
  CHECK(pair.at_server.inbox().message_count() == 0);
}

TEST_CASE("sending far more than the peer reads ends the connection", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  // The server's loop is blocked, so it reads nothing.
  std::promise<void> go_on;
  std::shared_future<void> waiting = go_on.get_future().share();
  pair.server.thread.loop.post([waiting] { waiting.wait(); });
  const std::vector<std::byte> message(limits::kMessageBytesMax / 4);
  for (std::size_t sent = 0; sent < 2 * limits::kSendQueueBytesMax; sent += message.size()) {
    pair.at_client.send(message);
  }
  CHECK(pair.at_client.inbox().wait_closed().code() == StatusCode::kRejected);
  go_on.set_value();
  CHECK_FALSE(pair.at_server.inbox().wait_closed().ok());
}

}  // namespace
}  // namespace precis::test
