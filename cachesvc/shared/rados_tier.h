// The storage that all nodes reach (shared_tier.h), in a pool of Ceph.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "cachesvc/shared/shared_tier.h"

namespace precis {

struct RadosSettings {
  std::string ceph_conf;             // a path; the file must have mon_host
  std::string user;                  // for example client.precis
  std::string pool;                  // a replicated pool that exists
  std::string space;                 // the RADOS namespace: the cluster's name
  std::chrono::seconds timeout{10};  // for connecting, and for each operation
  // An object longer than this is kept in pieces, each of which is sent in one operation. All nodes
  // of a cluster need the same number. Ceph takes 90 MiB an operation, unless set otherwise.
  std::size_t piece_bytes = 64u << 20;
};

// Blocks. kUnavailable if Ceph does not answer in time; a later call may succeed. Other errors last
// until a person acts, and say how: kUnsupported without librados, or if the pool is erasure-coded;
// kInvalidArgument if the configuration of Ceph cannot be read; kPermissionDenied if Ceph does not
// know the user by its keyring, or the user may not write; kNotFound without the pool.
Result<std::unique_ptr<SharedTier>> connect_rados(const RadosSettings& settings);

}  // namespace precis
