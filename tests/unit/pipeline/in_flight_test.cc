#include "cachesvc/pipeline/in_flight.h"

#include <catch2/catch.hpp>
#include <vector>

namespace precis {
namespace {

Task<void> start_all(InFlight& in_flight, int count, std::vector<int>& started, Status& outcome) {
  for (int i = 0; i < count; ++i) {
    co_await in_flight.enter();
    started.push_back(i);
  }
  outcome = co_await in_flight.drain();
  started.push_back(-1);
}

}  // namespace

TEST_CASE("no more operations are under way than the limit says", "[unit][pipeline]") {
  InFlight in_flight(2);
  std::vector<int> started;
  Status outcome = Status::internal("not drained");
  spawn(start_all(in_flight, 4, started, outcome));
  CHECK(started == std::vector<int>{0, 1});
  in_flight.leave({});
  CHECK(started == std::vector<int>{0, 1, 2});
  in_flight.leave({});
  CHECK(started == std::vector<int>{0, 1, 2, 3});
  in_flight.leave({});
  CHECK(started.back() == 3);  // one operation is left
  in_flight.leave({});
  CHECK(started.back() == -1);
  CHECK(outcome.ok());
}

TEST_CASE("the first error is kept while the others end", "[unit][pipeline]") {
  InFlight in_flight(SIZE_MAX);
  std::vector<int> started;
  Status outcome;
  spawn(start_all(in_flight, 3, started, outcome));
  in_flight.leave(Status::unavailable("first"));
  in_flight.leave(Status::internal("second"));
  CHECK(in_flight.first_error().message() == "first");
  in_flight.leave({});
  CHECK(outcome == Status::unavailable("first"));
}

TEST_CASE("draining nothing ends at once", "[unit][pipeline]") {
  InFlight in_flight(1);
  std::vector<int> started;
  Status outcome = Status::internal("not drained");
  spawn(start_all(in_flight, 0, started, outcome));
  CHECK(outcome.ok());
}

TEST_CASE("the one entered last waits until it is alone", "[unit][pipeline]") {
  InFlight in_flight(SIZE_MAX);
  bool alone = false;
  const auto enter_third = [&]() -> Task<void> {
    for (int i = 0; i < 3; ++i) co_await in_flight.enter();
    co_await in_flight.alone();
    alone = true;
  };
  spawn(enter_third());
  in_flight.leave({});
  CHECK_FALSE(alone);  // another operation is still under way
  in_flight.leave(Status::unavailable("it does not matter how they end"));
  CHECK(alone);
}

}  // namespace precis
