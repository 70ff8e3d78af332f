#include "cachesvc/server/status_requests.h"

#include <catch2/catch.hpp>
#include <optional>

namespace precis {
namespace {

Task<void> ask(Task<Answer> (*answer)(msg::Ping), std::optional<Answer>& answered) {
  answered = co_await answer(msg::Ping{});
}

}  // namespace

TEST_CASE("a sign of life is answered without a look at anything stored", "[unit][server]") {
  // A static function cannot reach a catalog or a store. The next line compiles only for a static
  // function.
  Task<Answer> (*const answer)(msg::Ping) = &StatusRequests::on;
  std::optional<Answer> answered;
  spawn(ask(answer, answered));
  REQUIRE(answered.has_value());  // at once, without waiting
  REQUIRE(answered->ok());
  CHECK(**answered == msg::ReplyBody(msg::Done{}));
}

}  // namespace precis
