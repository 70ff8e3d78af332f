// The tenant that a request belongs to: decided in the connection's handshake, passed in every
// call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/pipeline/fair_queue.h"
#include "precis/block_digest.h"
#include "precis/role.h"

namespace precis {

struct Tenant {
  std::string name;
  std::string salt;    // of its paths: paths under another salt do not match
  Weight weight = {};  // its share of scarce resources, relative to other tenants
  Role role = Role::kWriter;
  std::string token = {};  // the one that the client has proved; empty: none was needed

  Owner owner(const void* connection) const { return {name, weight, connection}; }
  // The root of its paths; in a cluster, of the paths in the shard.
  Digest root(const Digest& model, std::string_view adapter,
              std::optional<std::uint32_t> shard) const {
    const Digest whole = path_root(name, salt, model, adapter);
    return shard ? root_in_shard(whole, *shard) : whole;
  }
};

}  // namespace precis
