#include "cachesvc/server/handlers.h"

#include <catch2/catch.hpp>
#include <optional>

namespace precis {
namespace {

Task<void> ask(Task<Handlers::Answer> (*answer)(std::uint64_t, msg::Ping),
               std::optional<Handlers::Answer>& answered) {
  answered = co_await answer(1, msg::Ping{});
}

}  // namespace

TEST_CASE("a sign of life is answered without a look at anything stored", "[unit][server]") {
  // A static function cannot reach a catalog or a store. The next line compiles only for a static
  // function.
  Task<Handlers::Answer> (*const answer)(std::uint64_t, msg::Ping) = &Handlers::on;
  std::optional<Handlers::Answer> answered;
  spawn(ask(answer, answered));
  REQUIRE(answered.has_value());  // at once, without waiting
  REQUIRE(answered->ok());
  CHECK(**answered == msg::ReplyBody(msg::Done{}));
}

}  // namespace precis
