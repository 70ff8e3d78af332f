#include "cachesvc/catalog/budget_revisions.h"

#include <algorithm>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kPageRevisionsMax = 100, kPageBytesMax = 256 << 10;

std::size_t size_of(const msg::BudgetRevision& revision) {
  std::size_t bytes = sizeof revision + revision.user.size() + revision.comment.size();
  for (const msg::BudgetChange& change : revision.changes) {
    bytes += sizeof change + change.before.recipe.size() + change.after.recipe.size();
  }
  return bytes;
}

}  // namespace

void KeptRevisions::put(msg::BudgetRevision revision) {
  const auto at =
      std::ranges::lower_bound(revisions_, revision.number, {}, &msg::BudgetRevision::number);
  if (at != revisions_.end() && at->number == revision.number) {
    *at = std::move(revision);
  } else {
    revisions_.insert(at, std::move(revision));
  }
}

void KeptRevisions::erase(std::uint64_t number) {
  std::erase_if(revisions_, [&](const msg::BudgetRevision& each) { return each.number == number; });
}

std::vector<std::uint64_t> KeptRevisions::numbers() const {
  std::vector<std::uint64_t> numbers;
  for (const msg::BudgetRevision& each : revisions_) numbers.push_back(each.number);
  return numbers;
}

std::size_t KeptRevisions::count_after(std::uint64_t number) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      revisions_, [&](const msg::BudgetRevision& each) { return each.number > number; }));
}

std::vector<std::uint64_t> KeptRevisions::forgotten_by(const msg::BudgetRevision& next) const {
  std::vector<std::uint64_t> forgotten;
  std::size_t bytes = size_of(next), count = 1;
  for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
    bytes += size_of(*each);
    if (++count > limits::kBudgetRevisionsMax || bytes > limits::kBudgetRevisionBytesMax) {
      forgotten.push_back(each->number);
    }
  }
  return forgotten;
}

// The first change of a scope after that revision says what the scope was before. Changes of a
// session that do not lead to its present budget were those of an earlier session of its name.
KeptRevisions::Values KeptRevisions::values_after(
    std::uint64_t number,
    const std::function<msg::BudgetValues(const msg::BudgetScope&)>& values_now) const {
  Values then;
  for (auto later = revisions_.rbegin(); later != revisions_.rend() && later->number > number;
       ++later) {
    for (const msg::BudgetChange& change : later->changes) {
      const auto was = then.try_emplace(key_of(change.scope), values_now(change.scope)).first;
      if (change.scope.session.empty() || was->second == change.after) was->second = change.before;
    }
  }
  return then;
}

std::map<ScopeKey, msg::BudgetChange> KeptRevisions::changes(std::uint64_t from,
                                                             std::uint64_t to) const {
  std::map<ScopeKey, msg::BudgetChange> by_scope;
  for (const msg::BudgetRevision& each : revisions_) {
    if (each.number <= from || each.number > to) continue;
    for (const msg::BudgetChange& change : each.changes) {
      const auto [known, is_new] = by_scope.try_emplace(key_of(change.scope), change);
      if (!is_new) known->second.after = change.after;
    }
  }
  return by_scope;
}

msg::BudgetRevisions KeptRevisions::page(const msg::ListBudgetRevisions& request) const {
  msg::BudgetRevisions page;
  if (empty()) return page;
  page.oldest = revisions_.front().number;
  const std::size_t limit = std::min<std::size_t>(request.limit, kPageRevisionsMax);
  std::size_t bytes = 0;
  for (auto revision = revisions_.rbegin();
       revision != revisions_.rend() && page.rows.size() < limit && bytes < kPageBytesMax;
       ++revision) {
    if (request.before != 0 && revision->number >= request.before) continue;
    bytes += size_of(*revision);
    page.rows.push_back(*revision);
  }
  return page;
}

}  // namespace precis
