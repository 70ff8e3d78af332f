// The revisions of one tenant's budgets that are kept, in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "precis/budget_scope.h"

namespace precis {

// Not thread-safe.
class KeptRevisions {
 public:
  void put(msg::BudgetRevision revision);
  void erase(std::uint64_t number);
  bool empty() const { return revisions_.empty(); }
  std::uint64_t newest() const { return empty() ? 0 : revisions_.back().number; }
  std::vector<std::uint64_t> numbers() const;
  std::size_t count_after(std::uint64_t number) const;
  // The oldest revisions that are forgotten when `next` is added, newest first, so that there are
  // at most limits::kBudgetRevisionsMax, of at most limits::kBudgetRevisionBytesMax.
  std::vector<std::uint64_t> forgotten_by(const msg::BudgetRevision& next) const;
  // The values after a revision, of the scopes that later ones have changed. `values_now`: of a
  // scope. All later ones are kept.
  using Values = std::map<ScopeKey, msg::BudgetValues>;
  Values values_after(
      std::uint64_t number,
      const std::function<msg::BudgetValues(const msg::BudgetScope&)>& values_now) const;
  // Each scope's change from one revision to a later one.
  std::map<ScopeKey, msg::BudgetChange> changes(std::uint64_t from, std::uint64_t to) const;
  // Without BudgetRevisions::newest.
  msg::BudgetRevisions page(const msg::ListBudgetRevisions& request) const;

 private:
  std::deque<msg::BudgetRevision> revisions_;  // in order of their numbers
};

}  // namespace precis
