#include "client/src/node_applications.h"

#include <catch2/catch.hpp>

namespace {

using namespace precis;

NodeApplication ended(const std::string& address, std::uint64_t number, std::uint64_t revision,
                      std::uint64_t trimmed) {
  NodeApplication node{address, {}};
  node.state.number = number;
  node.state.state = "done";
  node.state.revision = revision;
  node.state.started_unix_ms = 1000;
  node.state.ended_unix_ms = 2000;
  node.state.segments = node.state.done_segments = node.state.trimmed_segments = trimmed;
  node.state.kept_mass = {trimmed == 1 ? 0.8 : 0.4};
  return node;
}

TEST_CASE("the applications of the newest change at all nodes are added up", "[client]") {
  const auto a = ended("a:1", 3, 7, 1), b = ended("b:1", 3, 7, 3), old = ended("c:1", 2, 7, 100);
  const msg::BudgetApplication sum = joined({a, b, old, {"d:1", {}}});
  CHECK(sum.state == "done");
  CHECK(sum.number == 3);
  CHECK(sum.revision == 7);
  CHECK(sum.trimmed_segments == 4);
  CHECK(sum.kept_mass[0] == Approx(0.5));
  CHECK(sum.ended_unix_ms == 2000);
  CHECK(joined({a}) == a.state);
  CHECK(joined({{"a:1", {}}, {"b:1", {}}}) == msg::BudgetApplication{});
}

TEST_CASE("an application runs while one node runs it, and an error names its node", "[client]") {
  auto a = ended("a:1", 1, 7, 1), b = ended("b:1", 1, 7, 1), c = ended("c:1", 1, 7, 1);
  b.state.state = "failed";
  b.state.code = "unavailable";
  b.state.error = "the disk";
  b.state.apart = "model-1\nmodel-2";
  c.state.state = "running";
  c.state.ended_unix_ms = 0;
  c.state.apart = "model-2\nmodel-3";
  const auto sum = joined({a, b, c});
  CHECK(sum.state == "running");
  CHECK(sum.ended_unix_ms == 0);
  CHECK(sum.error == "b:1: the disk");
  CHECK(sum.apart == "model-1\nmodel-2\nmodel-3");
  c.state.state = "done";
  CHECK(joined({a, b, c}).state == "failed");
  // The state of another application, for example an earlier count, is left out.
  b.state.number = 0;
  CHECK(joined({a, b, c}).state == "done");
  // Another application that still runs counts, because the newest one waits for it at this node.
  b.state.state = "running";
  CHECK(joined({a, b, c}).state == "running");
  CHECK(joined({a, b, c}).trimmed_segments == 2);
}

}  // namespace
