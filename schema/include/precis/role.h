// The roles of tenants. Each role may also do what the roles before it may. schema/control.capnp
// says for each request which role may send it.
#pragma once

#include <cstdint>
#include <string_view>

#include "precis/status.h"

namespace precis {

enum class Role : std::uint8_t {
  kReader,  // lookups, gets, lists and what shows one object
  kWriter,  // also puts, trims, removals, sessions, budgets, models and profiles
  kAdmin,   // also the management of tenants
};
std::string_view role_name(Role role);  // "reader", "writer" or "admin"
// kInvalidArgument names the possible values.
Result<Role> parse_role(std::string_view name);

}  // namespace precis
