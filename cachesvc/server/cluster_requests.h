// Requests about the cluster that the service belongs to.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class ClusterRequests {
 public:
  explicit ClusterRequests(const Caller& caller) : caller_(caller) {}

  Task<Answer> on(msg::ShowCluster request);
  Task<Answer> on(msg::DrainNode request);

 private:
  const Caller& caller_;
};

}  // namespace precis
