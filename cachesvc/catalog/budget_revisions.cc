// The revisions of BudgetTable.
#include <algorithm>
#include <set>

#include "cachesvc/catalog/budgets.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kPageRevisionsMax = 100, kPageBytesMax = 256 << 10;
constexpr std::size_t kComparedBytesMax = 1 << 20;

std::size_t size_of(const msg::BudgetRevision& revision) {
  std::size_t bytes = sizeof revision + revision.user.size() + revision.comment.size();
  for (const msg::BudgetChange& change : revision.changes) {
    bytes += sizeof change + change.before.recipe.size() + change.after.recipe.size();
  }
  return bytes;
}

}  // namespace

std::vector<std::uint64_t> BudgetTable::forgotten_by(std::string_view tenant,
                                                     const msg::BudgetRevision& revision) const {
  std::vector<std::uint64_t> forgotten;
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return forgotten;
  std::size_t bytes = size_of(revision), count = 1;
  for (auto each = kept->second.rbegin(); each != kept->second.rend(); ++each) {
    bytes += size_of(*each);
    if (++count > limits::kBudgetRevisionsMax || bytes > limits::kBudgetRevisionBytesMax) {
      forgotten.push_back(each->number);
    }
  }
  return forgotten;
}

void BudgetTable::put(std::string_view tenant, msg::BudgetRevision revision) {
  auto& kept = revisions_[std::string(tenant)];
  const auto at = std::ranges::lower_bound(kept, revision.number, {}, &msg::BudgetRevision::number);
  if (at != kept.end() && at->number == revision.number) {
    *at = std::move(revision);
  } else {
    kept.insert(at, std::move(revision));
  }
}

void BudgetTable::erase(std::string_view tenant, std::uint64_t revision) {
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return;
  std::erase_if(kept->second,
                [&](const msg::BudgetRevision& each) { return each.number == revision; });
  if (kept->second.empty()) revisions_.erase(kept);
}

// All rows of a tenant share one sequence, so that a revision identifies the whole state. Rows of
// an earlier build, none of which is a session's, have versions without a revision.
std::uint64_t BudgetTable::newest(std::string_view tenant) const {
  std::uint64_t newest = 0;
  const auto sessions = first_session(tenant);
  for (auto row = rows_.lower_bound({std::string(tenant), {}}); row != sessions; ++row) {
    newest = std::max(newest, row->second.version);
  }
  const auto kept = revisions_.find(tenant);
  if (kept != revisions_.end()) newest = std::max(newest, kept->second.back().number);
  return newest;
}

Status BudgetTable::check_newest(std::string_view tenant,
                                 std::optional<std::uint64_t> expected) const {
  const std::uint64_t is = newest(tenant);
  if (!expected || *expected == is) return {};
  return Status::conflict("the budgets are at revision " + std::to_string(is) + ", not " +
                          std::to_string(*expected) +
                          ": somebody else has changed them; see `precisctl budget log`");
}

Status BudgetTable::check_kept(std::string_view tenant, std::uint64_t revision) const {
  const std::uint64_t is = newest(tenant);
  if (revision > is) {
    return Status::not_found("there is no revision " + std::to_string(revision) +
                             "; the newest is " + std::to_string(is));
  }
  std::uint64_t later = 0;
  if (const auto kept = revisions_.find(tenant); kept != revisions_.end()) {
    later = static_cast<std::uint64_t>(std::ranges::count_if(
        kept->second, [&](const msg::BudgetRevision& each) { return each.number > revision; }));
  }
  if (later == is - revision) return {};
  return Status::not_found("not all revisions after " + std::to_string(revision) +
                           " are kept any more; see `precisctl budget log`");
}

// The first change of a scope after that revision says what the scope was before. Changes of a
// session that do not lead to its present budget were those of an earlier session of its name.
std::map<ScopeKey, msg::BudgetValues> BudgetTable::values_after(std::string_view tenant,
                                                                std::uint64_t revision) const {
  std::map<ScopeKey, msg::BudgetValues> then;
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return then;
  for (auto later = kept->second.rbegin(); later != kept->second.rend() && later->number > revision;
       ++later) {
    for (const msg::BudgetChange& change : later->changes) {
      const auto was = then.try_emplace(key_of(change.scope), values(tenant, change.scope)).first;
      if (change.scope.session.empty() || was->second == change.after) was->second = change.before;
    }
  }
  return then;
}

Result<BudgetTable::Planned> BudgetTable::rolled_back(std::string_view tenant,
                                                      const msg::RollBackBudget& request,
                                                      std::uint64_t now_ms,
                                                      const IsScope& is_scope) const {
  PRECIS_TRY(check_newest(tenant, request.if_revision));
  const std::uint64_t is = newest(tenant);
  PRECIS_TRY(check_kept(tenant, request.revision));
  if (request.revision == is) {
    return Status::conflict("the budgets are at revision " + std::to_string(is) +
                            "; roll back to an earlier one");
  }
  msg::BudgetRevision revision{0, 0, request.user, request.comment, request.revision, {}};
  for (auto& [key, was] : values_after(tenant, request.revision)) {
    const msg::BudgetScope scope = scope_of(key);
    if (!is_scope(scope)) continue;
    msg::BudgetValues now = values(tenant, scope);
    if (now != was) revision.changes.push_back({scope, std::move(now), std::move(was)});
  }
  return planned(tenant, std::move(revision), now_ms);
}

Result<msg::BudgetChanges> BudgetTable::compared(std::string_view tenant,
                                                 const msg::CompareBudgets& which,
                                                 const IsScope& is_scope) const {
  msg::BudgetChanges told{which.from, which.to.value_or(newest(tenant)), {}};
  PRECIS_TRY(check_kept(tenant, std::max(which.from.value_or(0), told.to)));
  PRECIS_TRY(check_kept(tenant, std::min(which.from.value_or(told.to), told.to)));
  std::size_t bytes = 0;
  const auto add = [&](msg::BudgetChange change) -> Status {
    if (change.before == change.after) return {};
    bytes += change.before.recipe.size() + change.after.recipe.size();
    if (told.changes.size() == limits::kListPageRowsMax || bytes > kComparedBytesMax) {
      return Status::out_of_space("more scopes differ than an answer holds, which are " +
                                  std::to_string(limits::kListPageRowsMax) +
                                  "; compare two revisions (`from` and `to`) that are close to "
                                  "each other");
    }
    told.changes.push_back(std::move(change));
    return {};
  };
  if (!which.from) {
    const auto changed_later = values_after(tenant, told.to);
    std::set<ScopeKey> scopes;
    for (const auto& [key, was] : changed_later) scopes.insert(key);
    for (const msg::BudgetScope& scope : keys(tenant).scopes) scopes.insert(key_of(scope));
    for (const ScopeKey& key : scopes) {
      const msg::BudgetScope scope = scope_of(key);
      const auto was = changed_later.find(key);
      if (!is_scope(scope)) continue;
      PRECIS_TRY(
          add({scope, {}, was == changed_later.end() ? values(tenant, scope) : was->second}));
    }
    return told;
  }
  const auto [first, last] = std::minmax({*which.from, told.to});
  std::map<ScopeKey, msg::BudgetChange> by_scope;
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return told;
  for (const msg::BudgetRevision& each : kept->second) {
    if (each.number <= first || each.number > last) continue;
    for (const msg::BudgetChange& change : each.changes) {
      const auto [known, is_new] = by_scope.try_emplace(key_of(change.scope), change);
      if (!is_new) known->second.after = change.after;
    }
  }
  for (auto& [key, change] : by_scope) {
    if (*which.from > told.to) std::swap(change.before, change.after);
    PRECIS_TRY(add(std::move(change)));
  }
  return told;
}

msg::BudgetRevisions BudgetTable::revisions(std::string_view tenant,
                                            const msg::ListBudgetRevisions& request) const {
  msg::BudgetRevisions page;
  page.newest = newest(tenant);
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return page;
  page.oldest = kept->second.front().number;
  const std::size_t limit = std::min<std::size_t>(request.limit, kPageRevisionsMax);
  std::size_t bytes = 0;
  for (auto revision = kept->second.rbegin();
       revision != kept->second.rend() && page.rows.size() < limit && bytes < kPageBytesMax;
       ++revision) {
    if (request.before != 0 && revision->number >= request.before) continue;
    bytes += size_of(*revision);
    page.rows.push_back(*revision);
  }
  return page;
}

}  // namespace precis
