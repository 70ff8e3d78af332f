// The contract of transport.h over every wire: greeting, and control messages.
#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("a connection begins with a hello and its reply", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Party server(wire, net), client(wire, net);
  std::promise<std::string> greeted, accepted;
  End at_server;
  const std::string address =
      listen(server, wire,
             {.greet =
                  [&](Bytes hello, const std::string&) {
                    greeted.set_value(text_of({hello.begin(), hello.end()}));
                    return Transport::Greeting{bytes_of("come in"), true};
                  },
              .accepted =
                  [&](std::unique_ptr<Connection> connection, Bytes hello) {
                    at_server = End(server, std::move(connection));
                    accepted.set_value(text_of({hello.begin(), hello.end()}));
                  }});
  auto connected = connect(client, address, bytes_of("it is me"));
  REQUIRE(connected.ok());
  const End at_client(client, std::move(connected->connection));
  CHECK(text_of(connected->hello_reply) == "come in");
  CHECK(get(greeted.get_future()) == "it is me");
  CHECK(get(accepted.get_future()) == "it is me");
  CHECK_FALSE(at_server.description().empty());
}

TEST_CASE("a refused peer gets the reply and no connection", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Party server(wire, net), client(wire, net);
  bool accepted = false;
  const std::string address =
      listen(server, wire,
             {.greet =
                  [](Bytes, const std::string&) {
                    return Transport::Greeting{bytes_of("not you"), false};
                  },
              .accepted = [&](std::unique_ptr<Connection>, Bytes) { accepted = true; }});
  auto connected = connect(client, address);
  REQUIRE(connected.ok());
  CHECK(connected->connection == nullptr);
  CHECK(text_of(connected->hello_reply) == "not you");
  CHECK_FALSE(server.thread.on_loop([&] { return accepted; }));
}

TEST_CASE("connecting where nobody listens is unavailable", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  auto net = make_loopback_net();
  Party server(wire, net), client(wire, net);
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
    // Empty, small, and around where UCX changes from eager to rendezvous.
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
  Party server(wire, net), client(wire, net);
  const std::string address =
      listen(server, wire,
             {.greet =
                  [](Bytes, const std::string&) {
                    return Transport::Greeting{{}, true};
                  },
              .accepted =
                  [&](std::unique_ptr<Connection> connection, Bytes) {
                    // Shared with the handlers, so that it lives until the peer has closed.
                    auto held = std::shared_ptr<Connection>(std::move(connection));
                    held->send(bytes_of("one"));
                    held->send(bytes_of("two"));
                    held->start({.on_message = [](std::vector<std::byte>) {},
                                 .on_closed = [held](Status) {}});
                  }});
  auto connected = connect(client, address);
  REQUIRE(connected.ok());
  End at_client(client, std::move(connected->connection));
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
  // The server's loop stands still meanwhile, so nothing is read.
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
