// The applications of a change of budgets at the nodes of a cluster, as one. Each node trims what
// it stores; the application has the same number at all nodes.
#pragma once

#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis {

struct NodeApplication {
  std::string address;  // empty: the service is in no cluster
  msg::BudgetApplication state;
};

// The sum of those with the newest number. It runs while one of them does.
msg::BudgetApplication joined(const std::vector<NodeApplication>& nodes);

}  // namespace precis
