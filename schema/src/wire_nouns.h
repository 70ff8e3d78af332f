// Reads and writes the types of types.capnp. The overloads are in the namespace of the generated
// types, so templates find them.
#pragma once

#include <optional>
#include <string_view>

#include "precis/messages.h"
#include "precis/types.h"
#include "types.capnp.h"

namespace precis::wire {

void write(ModelSpec::Builder out, const precis::ModelSpec& in);
void write(Budget::Builder out, const precis::Budget& in);
void write(Plan::Builder out, const precis::Plan& in);
void write(SessionRow::Builder out, const msg::SessionRow& in);

Status read(ModelSpec::Reader in, precis::ModelSpec& out);  // calls validate()
Status read(Budget::Reader in, precis::Budget& out);
Status read(Plan::Reader in, precis::Plan& out);  // counts fit the plan's shape
Status read(SessionRow::Reader in, msg::SessionRow& out);

// Checks the range [begin, end) of a segment's tokens.
Status check_token_range(std::string_view field, std::uint32_t begin, std::uint32_t end);

// For fields that may be absent.
template <typename Reader, typename T>
Status read_optional(bool present, std::string_view field, Reader in, std::optional<T>& out) {
  if (!present) return {};
  return read(in, out.emplace()).with_context(field);
}

}  // namespace precis::wire
