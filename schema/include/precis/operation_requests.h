// The requests of requests.h that operators and their tools send: lists, single prefixes, budgets,
// counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "precis/limits.h"
#include "precis/types.h"

namespace precis::msg {

struct ListPrefixes {  // one page
  std::optional<Digest> model;
  std::uint32_t limit = limits::kListPageRowsMax;  // the most rows of the page
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
  bool recursive = false;  // removes its descendants too; otherwise refused if it has children
  bool operator==(const RemovePrefix&) const = default;
};
struct CheckPrefix {
  SegmentId segment;
  bool operator==(const CheckPrefix&) const = default;
};
struct TrimPrefix {
  SegmentId segment;
  Budget budget;  // at most the stored budget, as in a Get
  Durability durability = Durability::kWal;
  bool dry_run = false;  // reports the result without changing anything
  bool operator==(const TrimPrefix&) const = default;
};
// Defaults for puts without a recipe or a budget. The narrowest scope with a setting wins: the
// request, then the model, then the tenant's global scope.
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
  std::optional<std::string> recipe;  // empty: remove the setting
  std::optional<Budget> keep;         // kAll: remove the setting
  bool operator==(const SetBudget&) const = default;
};
struct GetStats {
  bool operator==(const GetStats&) const = default;
};
struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};
// Shows that the client is alive. Costs the service almost nothing, however much it stores.
struct Ping {
  bool operator==(const Ping&) const = default;
};

}  // namespace precis::msg
