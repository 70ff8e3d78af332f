// Who asks: decided when a connection was greeted, and named in every call since.
#pragma once

#include <string>

namespace precis {

struct Tenant {
  std::string name;
  std::string salt;  // of the tenant's paths: another salt is another cache
};

}  // namespace precis
