// Requests in the log: their names, and the number of refused ones.
#include "cachesvc/server/log_limiter.h"

#include <catch2/catch.hpp>

#include "precis/messages.h"

namespace precis {

TEST_CASE("of what happens often some is told, and how much more there was", "[unit][server]") {
  LogLimiter refused;
  CHECK(refused.take_suppressed() == 0);
  for (unsigned i = 0; i < LogLimiter::kMax; ++i) CHECK(refused.allow());
  for (unsigned i = 0; i < 7; ++i) CHECK_FALSE(refused.allow());
  CHECK(refused.take_suppressed() == 7);
  CHECK(refused.allow());
  CHECK(refused.take_suppressed() == 0);
}

TEST_CASE("a request is called what its struct is, and known for an operator's", "[unit][server]") {
  const auto of = [](const msg::RequestBody& body) { return msg::kind_of(body); };
  CHECK(of(msg::RegisterModel{}).type == "RegisterModel");
  CHECK(of(msg::TrimPrefix{}).type == "TrimPrefix");
  CHECK(of(msg::RemoveSession{}).administrative);
  CHECK(of(msg::SetBudget{}).administrative);
  CHECK_FALSE(of(msg::BeginPut{}).administrative);
  CHECK_FALSE(of(msg::ShowBudget{}).administrative);
}

}  // namespace precis
