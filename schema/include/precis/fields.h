// Tables of the fields of message and row structs, for code that handles all of them in one way:
// JSON, Python, random messages in tests. schema/generate.py writes one for each struct of the
// schemas.
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>

#include "precis/role.h"

namespace precis {

template <typename Struct, typename Member>
struct Field {
  const char* name;
  Member Struct::*member;
};
template <typename Struct, typename Member>
Field(const char*, Member Struct::*) -> Field<Struct, Member>;

// Fields<T>::all is a tuple of T's fields, in the order of the schema.
template <typename T>
struct Fields;

// Calls visit(name, value) for each field of `row`.
template <typename T, typename Visit>
void for_each_field(T& row, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field.name, row.*field.member), ...); },
             Fields<std::remove_const_t<T>>::all);
}

// A kind of request, by its annotations in the schema.
struct RequestKind {
  std::string_view type = {};  // name of its struct: "SetBudget"
  std::string_view call = {};  // name of the client's call: "set_budget"
  // The request concerns an operator: if it fails, the audit log has it, and the log at info level.
  bool administrative = false;
  Role role = Role::kAdmin;  // the least role that may send it
};

}  // namespace precis
