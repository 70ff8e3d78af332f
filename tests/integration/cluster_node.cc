#include "tests/integration/cluster_node.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "precis/limits.h"

namespace precis::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

msg::ClusterState await(Node& node, const std::function<bool(const msg::ClusterState&)>& expected) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const auto state = node.client().cluster();
    if (state.ok() && expected(*state)) return *state;
    if (std::chrono::steady_clock::now() > until) {
      UNSCOPED_INFO(state.status().to_string() << "\n" << node.ctl({"status"}).out);
      REQUIRE((state.ok() && expected(*state)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::uint64_t stored_at(const Node& node) {
  return node.connect_as("red")->status().value().segments;
}

std::uint32_t shards_of(const msg::ClusterState& state, const std::string& name) {
  for (const msg::ClusterNode& node : state.nodes) {
    if (node.name == name) return node.shards;
  }
  return 0;
}

std::function<bool(const msg::ClusterState&)> shared_by(std::vector<std::string> names) {
  return [names = std::move(names)](const msg::ClusterState& state) {
    if (state.nodes.size() != names.size()) return false;
    for (const std::string& name : names) {
      const std::uint32_t fair = limits::kShards / static_cast<std::uint32_t>(names.size());
      const std::uint32_t shards = shards_of(state, name);
      if (shards < fair || shards > fair + 1) return false;
    }
    return state.state == "member" && state.error.empty();
  };
}

}  // namespace precis::testing
