// The applications of budgets that all nodes of a cluster run: each tenant's newest one, and its
// newest count (a dry run). Both are rows that all nodes share (agreed_rows.h), so an operator can
// ask any node.
//
// A node begins an application once it has the row. After a restart, and when it has taken shards,
// it applies the budgets again, until a later change of the tenant's budgets is made. Segments that
// were stored after the application was asked for are left alone.
//
// A row's value is a StoredRevision. Its `number` is the newest revision of the tenant's budgets,
// and its `application` is the application's number at all nodes. Its changes are those to apply.
// `rollback_to` is set if only smaller budgets are applied. No change has a keep if the limits are
// applied. A row without changes is a canceled application.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/cluster/agreed_rows.h"
#include "cachesvc/pipeline/concerned_segments.h"
#include "cachesvc/server/handler_parts.h"

namespace precis {

class AgreedApplications {
 public:
  // `parts` outlive it.
  explicit AgreedApplications(const HandlerParts& parts) : parts_(parts) {}

  // [blocking] Any thread. Lets all nodes apply these budgets, or count, if `revision` is still the
  // tenant's newest. Returns the number. kConflict if it is not; else errors as
  // AgreedRows::change(). This node has begun when the loop has run what was posted to it.
  Result<std::uint64_t> begin(const std::string& tenant, const BudgetsToApply& budgets,
                              std::uint64_t revision, bool dry_run);
  // [blocking] Any thread. Ends the application or the count of this number at all nodes, also at
  // those that are down; 0: both. kConflict if neither has this number; else as begin().
  Status end(const std::string& tenant, std::uint64_t number);
  // [blocking] Any thread. As end(), for a tenant that was removed.
  Status forget(const std::string& tenant);
  // Any thread. Runs each tenant's newest application again. Call it when this node has taken over
  // stored segments.
  void apply_again() { apply(/*again=*/true); }
  // Any thread. Begins the applications that waited for the revision of their budgets. Call it when
  // settings have changed.
  void begin_late() { apply(/*again=*/false); }

  // The rows of this node. Any thread.
  static bool is_key(std::string_view key);
  std::vector<cluster::AgreedRow> rows() const;
  // Keeps the row and begins its application. kCorruption if this class cannot have written the
  // row; then the former row stays. `is_joining`: the node has just started, and nobody waits for
  // its counts.
  Status take(const cluster::AgreedRow& row, bool is_joining);

  // Convert budgets to a row's value and back.
  static msg::BudgetRevision to_row(const BudgetsToApply& budgets);
  static BudgetsToApply from_row(const msg::BudgetRevision& row);

 private:
  struct Kept {
    std::string value;
    std::string tenant;
    bool dry_run = false;
    msg::BudgetRevision row;
  };
  std::uint64_t newest_number(const std::string& tenant) const;
  Status change(const cluster::AgreedRows::Plan& plan) const;
  void apply(bool again);
  void begin_here(const Kept& kept, bool again) const;  // on the loop

  const HandlerParts& parts_;
  mutable std::mutex mutex_;
  std::map<std::string, Kept> kept_;  // by key; guarded by mutex_
};

}  // namespace precis
