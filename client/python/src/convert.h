// Small values as Python passes them: ids and digests in hex, a budget as (kind, value).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <string>
#include <utility>

#include "arrays.h"
#include "errors.h"
#include "precis/types.h"

namespace precis::python {

// The number of a Budget's kind, and its value.
using BudgetPair = std::pair<unsigned, std::uint64_t>;

inline Budget to_budget(const BudgetPair& pair) {
  if (pair.first > static_cast<unsigned>(Budget::Kind::kQuality)) {
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

// "" is the null id.
inline SegmentId to_segment_id(const std::string& hex) {
  return hex.empty() ? SegmentId{} : unwrap(parse_segment_id(hex));
}

inline std::string from_segment_id(const SegmentId& id) { return id.is_null() ? "" : id.hex(); }

// [num_layers, num_kv_heads]
inline nb::object from_plan(const Plan& plan) {
  return array_of(plan.counts, plan.num_layers, plan.num_kv_heads);
}

}  // namespace precis::python
