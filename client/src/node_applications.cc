#include "client/src/node_applications.h"

#include <algorithm>
#include <sstream>

namespace precis {
namespace {

// The worse of two states. Empty: the node has no application.
const std::string& worse(const std::string& a, const std::string& b) {
  for (const char* const state : {"running", "failed", "canceled", "done"}) {
    if (a == state) return a;
    if (b == state) return b;
  }
  return a;
}

// Adds those of the names, one a line, that are missing.
void add_names(std::string& names, const std::string& more) {
  std::istringstream lines(more);
  for (std::string name; std::getline(lines, name);) {
    if (("\n" + names + "\n").find("\n" + name + "\n") != std::string::npos) continue;
    names += (names.empty() ? "" : "\n") + name;
  }
}

// `sum`: each layer's mean times the number of segments.
void add_mass(std::vector<double>& sum, const msg::BudgetApplication& state) {
  sum.resize(std::max(sum.size(), state.kept_mass.size()));
  for (std::size_t layer = 0; layer < state.kept_mass.size(); ++layer) {
    sum[layer] += state.kept_mass[layer] * static_cast<double>(state.trimmed_segments);
  }
}

void add(msg::BudgetApplication& sum, const NodeApplication& node) {
  const msg::BudgetApplication& state = node.state;
  sum.state = worse(sum.state, state.state);
  sum.started_unix_ms = sum.started_unix_ms == 0
                            ? state.started_unix_ms
                            : std::min(sum.started_unix_ms, state.started_unix_ms);
  sum.ended_unix_ms = std::max(sum.ended_unix_ms, state.ended_unix_ms);
  sum.segments += state.segments;
  sum.bytes += state.bytes;
  sum.done_segments += state.done_segments;
  sum.done_bytes += state.done_bytes;
  sum.trimmed_segments += state.trimmed_segments;
  sum.stored_bytes += state.stored_bytes;
  sum.freed_bytes += state.freed_bytes;
  add_mass(sum.kept_mass, state);
  sum.refused_segments += state.refused_segments;
  if (sum.refused.empty()) sum.refused = state.refused;
  add_names(sum.loss, state.loss);
  add_names(sum.apart, state.apart);
  if (sum.code.empty() && !state.code.empty()) {
    sum.code = state.code;
    sum.error = node.address + ": " + state.error;
  }
}

}  // namespace

msg::BudgetApplication joined(const std::vector<NodeApplication>& nodes) {
  if (nodes.size() == 1) return nodes.front().state;
  msg::BudgetApplication sum;
  const auto newest = std::ranges::max_element(
      nodes, {}, [](const NodeApplication& node) { return node.state.number; });
  if (newest == nodes.end() || newest->state.number == 0) return sum;
  sum.number = newest->state.number;
  sum.revision = newest->state.revision;
  sum.dry_run = newest->state.dry_run;
  for (const NodeApplication& node : nodes) {
    if (node.state.number == sum.number) {
      add(sum, node);
    } else if (node.state.state == "running") {  // the newest waits for it at this node
      sum.state = node.state.state;
    }
  }
  if (sum.state == "running") sum.ended_unix_ms = 0;
  if (sum.trimmed_segments > 0) {
    for (double& mass : sum.kept_mass) mass /= static_cast<double>(sum.trimmed_segments);
  }
  return sum;
}

}  // namespace precis
