// Who asks: decided when a connection was greeted, and named in every call since.
#pragma once

#include <string>

#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

struct Tenant {
  std::string name;
  std::string salt;    // of the tenant's paths: another salt is another cache
  Weight weight = {};  // its share of what tenants wait for, beside theirs

  Owner owner(const void* connection) const { return {name, weight, connection}; }
};

}  // namespace precis
