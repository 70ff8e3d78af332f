// The applications of a change of budgets at the nodes of a cluster, as one: each node trims what
// it stores, under a number that all nodes have alike.
#pragma once

#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis {

struct NodeApplication {
  std::string address;  // empty: the service is in no cluster
  msg::BudgetApplication state;
};

// Those with the newest number, added up. It runs while one of them does.
msg::BudgetApplication joined(const std::vector<NodeApplication>& nodes);

}  // namespace precis
