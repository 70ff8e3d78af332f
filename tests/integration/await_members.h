// Waits until all nodes of a cluster know something.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/cluster_node.h"

namespace precis::testing {

// Waits until the condition holds, for at most a minute. In a cluster, changes reach the other
// nodes a little later.
inline void await_that(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(holds());
}

// Waits until each of these nodes knows that all of them own shards.
inline void await_members(std::initializer_list<Node*> nodes) {
  std::vector<std::string> names;
  for (Node* const node : nodes) names.push_back(node->name());
  for (Node* const node : nodes) await(*node, shared_by(names));
}

}  // namespace precis::testing
