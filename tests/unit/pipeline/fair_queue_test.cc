// The order of turns: tenants by weight, then their connections, each in its own order.
#include "cachesvc/pipeline/fair_queue.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

namespace precis {
namespace {

const int kConnections[128] = {};

Owner owner(const std::string& tenant, int connection = 0, std::uint32_t weight = 1) {
  return {tenant, weight, &kConnections[connection]};
}

// The number of turns that each tenant gets among the next `turns`. Items are the tenants' names.
std::map<std::string, int> next_turns(FairQueue<std::string>& queue, int turns) {
  std::map<std::string, int> had;
  for (int i = 0; i < turns && !queue.empty(); ++i) ++had[queue.pop()];
  return had;
}

}  // namespace

TEST_CASE("a tenant with a hundred connections has as many turns as one with one",
          "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (int round = 0; round < 10; ++round) {
    for (int c = 0; c < 100; ++c) queue.push(owner("many", c), "many");
  }
  for (int i = 0; i < 50; ++i) queue.push(owner("one"), "one");
  const auto had = next_turns(queue, 100);
  CHECK(had.at("one") == 50);
  CHECK(had.at("many") == 50);
}

TEST_CASE("a tenant has turns by its weight", "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (int i = 0; i < 300; ++i) {
    queue.push(owner("light", 0, 1), "light");
    queue.push(owner("heavy", i % 5, 3), "heavy");
  }
  const auto had = next_turns(queue, 200);
  CHECK(had.at("light") == 50);
  CHECK(had.at("heavy") == 150);
}

TEST_CASE("the connections of a tenant take turns, and each keeps its order", "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (const char* name : {"a1", "a2", "a3"}) queue.push(owner("t", 1), name);
  queue.push(owner("t", 2), "b1");
  std::string order;
  while (!queue.empty()) order += queue.pop() + " ";
  CHECK(order == "a1 b1 a2 a3 ");
}

TEST_CASE("a tenant that asks again after every turn gets no more than its share",
          "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (int i = 0; i < 100; ++i) queue.push(owner("waits"), "waits");
  queue.push(owner("returns"), "returns");
  int returned = 0;
  for (int i = 0; i < 100; ++i) {
    if (queue.pop() != "returns") continue;
    ++returned;
    queue.push(owner("returns"), "returns");
  }
  CHECK(returned == 50);
}

TEST_CASE("a tenant that was away has saved nothing up", "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (int i = 0; i < 200; ++i) queue.push(owner("stays"), "stays");
  next_turns(queue, 100);
  for (int i = 0; i < 100; ++i) queue.push(owner("comes"), "comes");
  CHECK(next_turns(queue, 20).at("stays") == 10);
}

TEST_CASE("a turn that is as long as many counts as many", "[unit][pipeline]") {
  FairQueue<std::string> queue;
  for (int i = 0; i < 10; ++i) queue.push(owner("long"), "long", 8);
  for (int i = 0; i < 100; ++i) queue.push(owner("short"), "short");
  const auto had = next_turns(queue, 45);
  CHECK(had.at("long") == 5);
  CHECK(had.at("short") == 40);
}

TEST_CASE("what leaves a fair queue takes nobody's turn", "[unit][pipeline]") {
  FairQueue<std::string> queue;
  queue.push(owner("a"), "a1");
  queue.push(owner("a"), "a2");
  queue.push(owner("b"), "b1");
  const auto is = [](const char* name) {
    return [name](const std::string& item) { return item == name; };
  };
  CHECK(queue.take_if(is("a1")) == "a1");
  CHECK_FALSE(queue.take_if(is("a1")));
  CHECK(queue.size() == 2);
  CHECK(queue.front() == "a2");
  CHECK(queue.pop() == "a2");
  CHECK(queue.take_if(is("b1")) == "b1");
  CHECK(queue.empty());
}

}  // namespace precis
