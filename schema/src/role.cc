#include "precis/role.h"

#include <string>

namespace precis {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kReader: return "reader";
    case Role::kWriter: return "writer";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

Result<Role> parse_role(std::string_view name) {
  for (const Role role : {Role::kReader, Role::kWriter, Role::kAdmin}) {
    if (name == role_name(role)) return role;
  }
  return Status::invalid("the role is '" + std::string(name) +
                         "', must be reader, writer or admin");
}

}  // namespace precis
