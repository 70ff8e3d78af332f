// Converts small values to and from Python: ids and digests as hex, a budget as (kind, value).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "precis/messages.h"
#include "precis/options.h"
#include "precis/types.h"

namespace precis::python {

// The number of a Budget's kind, and its value.
using BudgetPair = std::pair<unsigned, std::uint64_t>;

inline Budget to_budget(const BudgetPair& pair) {
  if (pair.first > static_cast<unsigned>(Budget::Kind::kLoss)) {
    raise(Status::invalid("keep: unknown kind " + std::to_string(pair.first)));
  }
  return {static_cast<Budget::Kind>(pair.first), pair.second};
}

inline std::optional<Budget> to_budget(const std::optional<BudgetPair>& pair) {
  if (!pair) return std::nullopt;
  return to_budget(*pair);
}

inline BudgetPair from_budget(const Budget& budget) {
  return {static_cast<unsigned>(budget.kind), budget.value};
}

inline std::optional<BudgetPair> from_budget(const std::optional<Budget>& budget) {
  if (!budget) return std::nullopt;
  return from_budget(*budget);
}

// Priority, TTL and time until the next use, in seconds.
using HintValues = std::tuple<std::optional<std::uint32_t>, std::optional<std::uint64_t>,
                              std::optional<std::uint64_t>>;

inline msg::Hints to_hints(const HintValues& values) {
  return {std::get<0>(values), std::get<1>(values), std::get<2>(values)};
}

inline LookupOptions to_lookup_options(const std::optional<BudgetPair>& keep, std::uint32_t align,
                                       std::uint32_t lease_ms, const HintValues& hints,
                                       const std::string& traceparent, const std::string& session) {
  return {to_budget(keep), align,       std::chrono::milliseconds(lease_ms),
          to_hints(hints), traceparent, session};
}

// "" is the null id.
inline SegmentId to_segment_id(const std::string& hex) {
  return hex.empty() ? SegmentId{} : unwrap(parse_segment_id(hex));
}

inline std::string from_segment_id(const SegmentId& id) { return id.is_null() ? "" : id.hex(); }

// [num_layers, num_kv_heads]
inline nb::object from_plan(const Plan& plan) {
  return array_of(plan.counts, plan.num_layers, plan.num_kv_heads);
}

// ---- fields of rows ----------------------------------------------------------------------------
inline nb::object to_python(const Digest& digest) { return nb::cast(digest.hex()); }
inline nb::object to_python(const SegmentId& id) { return nb::cast(from_segment_id(id)); }
inline nb::object to_python(Dtype dtype) { return nb::cast(std::string(dtype_name(dtype))); }
inline nb::object to_python(Encoding encoding) {
  return nb::cast(std::string(encoding_name(encoding)));
}
inline nb::object to_python(const Budget& budget) { return nb::cast(from_budget(budget)); }
inline nb::object to_python(const std::optional<Budget>& budget) {
  return nb::cast(from_budget(budget));
}
inline nb::object to_python(const Plan& plan) { return from_plan(plan); }
inline nb::object to_python(const std::optional<Plan>& plan) {
  return plan ? from_plan(*plan) : nb::none();
}
// As an array with one row.
inline nb::object to_python(const std::vector<std::uint32_t>& counts) {
  return array_of(counts, 1, counts.size());
}
template <typename T>
nb::object to_python(const T& value) {
  return nb::cast(value);
}

// A class whose attributes are the fields of `Row`.
template <typename Row, typename Class = Row>
nb::class_<Class> bind_row(nb::module_& module, const char* name) {
  nb::class_<Class> bound(module, name);
  std::apply(
      [&](const auto&... field) {
        (bound.def_prop_ro(field.name,
                           [at = field.member](const Class& row) { return to_python(row.*at); }),
         ...);
      },
      Fields<Row>::all);
  return bound;
}

}  // namespace precis::python
