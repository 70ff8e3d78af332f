// The tenant that a request belongs to: decided in the connection's handshake, passed in every
// call.
#pragma once

#include <string>

#include "cachesvc/pipeline/fair_queue.h"
#include "precis/role.h"

namespace precis {

struct Tenant {
  std::string name;
  std::string salt;    // of its paths: paths under another salt do not match
  Weight weight = {};  // its share of scarce resources, relative to other tenants
  Role role = Role::kWriter;
  std::string token = {};  // the one that the client has proved; empty: none was needed

  Owner owner(const void* connection) const { return {name, weight, connection}; }
};

}  // namespace precis
