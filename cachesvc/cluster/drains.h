// Drains of nodes, which operators ask for: a node that is drained owns no shards (view.h).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/cluster/etcd.h"

namespace precis::cluster {

class Drains {
 public:
  Drains(const std::vector<HttpEndpoint>& etcd, std::shared_ptr<const TlsContext> tls,
         std::string cluster)
      : cluster_(std::move(cluster)), etcd_(etcd, std::move(tls)) {}

  // [blocking] Any thread. As Membership::drain().
  Status set(const std::string& node, bool on);
  // Any thread. A call in progress soon ends.
  void hurry() { etcd_.hurry(); }

 private:
  Status write(const std::string& node, bool on);

  const std::string cluster_;
  std::mutex mutex_;  // one drain at a time uses etcd_
  Etcd etcd_;
};

}  // namespace precis::cluster
