// The requests of requests.h that operators and their tools send: lists, single prefixes, budgets,
// counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "precis/limits.h"
#include "precis/types.h"

namespace precis::msg {

struct ListPrefixes {  // a page of them
  std::optional<Digest> model;
  std::uint32_t limit = limits::kListPageRowsMax;  // rows of the page at most
  std::string after{};
  bool operator==(const ListPrefixes&) const = default;
};
struct ShowPrefix {
  SegmentId segment;
  bool operator==(const ShowPrefix&) const = default;
};
// The one segment whose id begins with these lower-case hexadecimal digits.
struct FindPrefix {
  std::string id_beginning;
  bool operator==(const FindPrefix&) const = default;
};
struct RemovePrefix {
  SegmentId segment;
  bool recursive = false;  // with all segments that stand on it; else refused where there are any
  bool operator==(const RemovePrefix&) const = default;
};
struct CheckPrefix {
  SegmentId segment;
  bool operator==(const CheckPrefix&) const = default;
};
struct TrimPrefix {
  SegmentId segment;
  Budget budget;  // at most what is stored, as for a Get
  Durability durability = Durability::kWal;
  bool dry_run = false;  // says what would be, and changes nothing
  bool operator==(const TrimPrefix&) const = default;
};
// Defaults for puts that name no recipe or no budget; the narrowest scope that says wins:
// the request, then the model, then the tenant's global one.
struct BudgetScope {
  std::optional<Digest> model;  // none: global
  bool operator==(const BudgetScope&) const = default;
};
struct ShowBudget {
  BudgetScope scope;
  bool operator==(const ShowBudget&) const = default;
};
struct SetBudget {
  BudgetScope scope;
  std::optional<std::string> recipe;  // an empty one unsets
  std::optional<Budget> keep;         // kAll unsets
  bool operator==(const SetBudget&) const = default;
};
struct GetStats {
  bool operator==(const GetStats&) const = default;
};
struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};
// A sign of life: costs the service next to nothing, whatever it stores.
struct Ping {
  bool operator==(const Ping&) const = default;
};

}  // namespace precis::msg
