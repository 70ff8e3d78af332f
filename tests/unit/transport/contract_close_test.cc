// The contract of transport.h over every wire: the end of a connection.
#include <catch2/catch.hpp>

#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("closing tells the peer once, after every message sent before", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const bool destroy = GENERATE(false, true);
  CAPTURE(wire_name(wire), destroy);
  Pair pair(wire);
  constexpr std::size_t kMessages = 50;
  for (std::size_t i = 0; i < kMessages; ++i) {
    pair.at_client.send(std::vector<std::byte>(i * 1000));
  }
  if (destroy) {
    pair.at_client.drop();
  } else {
    pair.at_client.close();
  }
  CHECK(pair.at_server.inbox().wait_closed().code() == StatusCode::kUnavailable);
  CHECK(pair.at_server.inbox().message_count() == kMessages);
  // Once the message on a second connection of the same transports has arrived, so has everything
  // sent before it.
  auto again = pair.connect_again();
  again.second.send(bytes_of("after"));
  again.first.inbox().wait_messages(1);
  CHECK(pair.at_server.inbox().closed_count() == 1);
  CHECK(pair.at_client.inbox().closed_count() == 0);
}

TEST_CASE("a handler may destroy its own connection", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const bool in_message = GENERATE(false, true);
  CAPTURE(wire_name(wire), in_message);
  Pair pair(wire);
  auto again = pair.connect_again();
  std::unique_ptr<Connection> held = again.first.release();
  std::promise<void> destroyed;
  pair.server.thread.on_loop([&] {
    const auto destroy = [&] {
      held.reset();
      destroyed.set_value();
    };
    held->start({.on_message =
                     [&, destroy](std::vector<std::byte>) {
                       if (in_message) destroy();
                     },
                 .on_closed =
                     [&, destroy](const Status&) {
                       if (!in_message) destroy();
                     }});
  });
  again.second.send(bytes_of("one"));
  again.second.send(bytes_of("two"));
  if (!in_message) again.second.close();
  get(destroyed.get_future());
  if (in_message) CHECK_FALSE(again.second.inbox().wait_closed().ok());
}

TEST_CASE("closing ends the transfers under way", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const bool server_closes = GENERATE(false, true);
  CAPTURE(wire_name(wire), server_closes);
  Pair pair(wire);
  std::vector<std::byte> at_server(64u << 20), at_client(64u << 20);
  auto server_memory = pair.server.register_memory(at_server);
  auto client_memory = pair.client.register_memory(at_client);
  auto exposure = pair.at_client.expose(*client_memory);
  std::vector<std::future<Status>> under_way;
  for (int i = 0; i < 4; ++i) {
    under_way.push_back(
        pair.at_server.start_pull(exposure->region(), 0, at_server, *server_memory));
    under_way.push_back(
        pair.at_server.start_push({at_server}, *server_memory, exposure->region(), 0));
  }
  if (server_closes) {
    pair.at_server.drop();
  } else {
    pair.at_client.drop();
  }
  for (auto& transfer : under_way) {
    const Status status = get(std::move(transfer));
    CHECK((status.ok() ||
           status.code() == (server_closes ? StatusCode::kCanceled : StatusCode::kUnavailable)));
  }
  exposure.reset();
}

TEST_CASE("destroying a transport closes its connections", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  pair.client.thread.on_loop([&] { pair.client.transport.reset(); });
  CHECK(pair.at_server.inbox().wait_closed().code() == StatusCode::kUnavailable);
  CHECK_FALSE(pair.at_client.inbox().wait_closed().ok());
  pair.at_client.send(bytes_of("into the void"));
}

TEST_CASE("the end of one connection leaves the others alone", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  for (std::size_t round = 1; round <= 10; ++round) {
    auto other = pair.connect_again();
    other.second.send(bytes_of("hello"));
    other.first.inbox().wait_messages(1);
    other.second.drop();
    CHECK_FALSE(other.first.inbox().wait_closed().ok());
    pair.at_client.send(bytes_of("still here"));
    pair.at_server.inbox().wait_messages(round);
  }
  CHECK(pair.at_server.inbox().closed_count() == 0);
}

}  // namespace
}  // namespace precis::test
