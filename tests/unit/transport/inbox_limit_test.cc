// Messages that nobody has taken yet are bounded, over all connections: who has most of them goes.
#include <catch2/catch.hpp>

#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("of too many messages that wait, those of who sent most go, with the connection",
          "[transport]") {
  UcxOptions options = ucx_options(Wire::kTcpMessages);
  options.inbox_bytes_max = 256u << 10;
  Party server(options), client(Wire::kTcpMessages);
  std::vector<End> at_server;  // the modest one's, then the greedy one's; they take nothing yet
  const std::string address =
      listen(server, Wire::kTcpMessages,
             {.greet =
                  [](Bytes, const std::string&) {
                    return Transport::Greeting{{}, true};
                  },
              .accepted = [&](std::unique_ptr<Connection> connection,
                              Bytes) { at_server.emplace_back(server, std::move(connection)); }});
  std::vector<End> at_client;
  for (int i = 0; i < 2; ++i) {
    auto connected = connect(client, address);
    REQUIRE(connected.ok());
    at_client.emplace_back(client, std::move(connected->connection));
    at_client.back().start();
  }
  at_client[0].send(bytes_of("little"));
  for (int i = 0; i < 8; ++i) at_client[1].send(std::vector<std::byte>(60'000));
  CHECK(at_client[1].inbox().wait_closed().code() == StatusCode::kUnavailable);
  CHECK(at_client[0].inbox().closed_count() == 0);
  REQUIRE(at_server.size() == 2);
  at_server[1].start();
  const Status told = at_server[1].inbox().wait_closed();
  CHECK(told.code() == StatusCode::kRejected);
  CHECK_THAT(told.message(), Catch::Contains("are the most"));
  at_client[0].send(bytes_of("more"));
  at_server[0].start();
  CHECK(text_of(at_server[0].inbox().wait_messages(2)[1]) == "more");
}

}  // namespace
}  // namespace precis::test
