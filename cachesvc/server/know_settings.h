// The settings that a request needs, if other nodes of the cluster have just made them.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

// Only in a cluster. If this node does not know the model that the request names, or no profile for
// its recipe, or if the request is about the application of budgets, it first takes what other
// nodes have changed. kRejected if it can't; a request about an application is then answered from
// what this node knows.
Task<Status> know_settings(const Caller& caller, const msg::RequestBody& request);

}  // namespace precis
