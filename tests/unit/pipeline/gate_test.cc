#include "cachesvc/pipeline/gate.h"
#include "cachesvc/base/asio_loop.h"

#include <catch2/catch.hpp>
#include <vector>

namespace precis {
namespace {

Task<void> go_in(Gate& gate, int who, std::vector<int>& inside) {
  co_await gate.enter();
  inside.push_back(who);
}

}  // namespace

TEST_CASE("so many go in at once, and the others in their order as places come free",
          "[unit][pipeline]") {
  AsioLoop loop;
  Gate gate(loop, 2);
  std::vector<int> inside;
  const auto turn = [&] {
    loop.post([&] { loop.stop(); });
    loop.run();
  };
  for (int who = 0; who < 4; ++who) spawn(go_in(gate, who, inside));
  CHECK(inside == std::vector<int>{0, 1});
  gate.leave();
  CHECK(inside.size() == 2);  // not within leave()
  // The place is taken, although the waiter that got it has not resumed yet.
  spawn(go_in(gate, 4, inside));
  turn();
  CHECK(inside == std::vector<int>{0, 1, 2});
  for (int left = 0; left < 2; ++left) gate.leave();
  turn();
  CHECK(inside == std::vector<int>{0, 1, 2, 3, 4});
  for (int left = 0; left < 2; ++left) gate.leave();
  for (int who = 5; who < 8; ++who) spawn(go_in(gate, who, inside));
  CHECK(inside.size() == 7);
  gate.leave();
  turn();
  CHECK(inside.back() == 7);
}

}  // namespace precis
