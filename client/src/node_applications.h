// The applications of a change of budgets at the nodes of a cluster, as one: each node trims what
// it stores, and numbers its applications by itself.
#pragma once

#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis {

struct NodeApplication {
  std::string address;  // empty: the service is in no cluster
  msg::BudgetApplication state;
};

// Those of the newest change, added up. It runs while one of them does. The number is the sum of
// all nodes' numbers, so it changes when any node begins another one, or is restarted.
msg::BudgetApplication joined(const std::vector<NodeApplication>& nodes);

}  // namespace precis
