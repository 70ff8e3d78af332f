// Messages that have not been handled yet are bounded over all connections. At the bound, the
// connection with most of them is closed.
#include <catch2/catch.hpp>

#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

TEST_CASE("of too many messages on their way, those of who sent most go, with the connection",
          "[transport]") {
  SocketOptions options = Server::default_options();
  options.inbox_bytes_max = 1u << 20;
  Pair pair(Wire::kTcp, options);
  auto greedy = pair.connect_again();
  // One message of 100 MiB: it counts while it arrives, not only when it is complete.
  greedy.second.send(std::vector<std::byte>(100u << 20));
  const Status told = greedy.first.inbox().wait_closed();
  CHECK(told.code() == StatusCode::kRejected);
  CHECK_THAT(told.message(), Catch::Contains("the most of all connections"));
  CHECK_FALSE(greedy.second.inbox().wait_closed().ok());
  pair.at_client.send(bytes_of("more"));
  CHECK(text_of(pair.at_server.inbox().wait_messages(1)[0]) == "more");
}

}  // namespace
}  // namespace precis::test
