// The calls of a client that operators and their tools use: listings, removals, trims, budgets and
// counters. Programs include client.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "precis/messages.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

class OperatorClient {
 public:
  virtual ~OperatorClient() = default;

  // The newest first, at most `limit`. The list is read in pages, so a segment that is stored or
  // removed meanwhile may or may not be in it.
  virtual Result<std::vector<msg::SegmentInfo>> segments(std::optional<Digest> model = {},
                                                         std::uint32_t limit = 1000) = 0;
  // One page of the same list, for lists that are too long for memory. The first has an empty
  // `after`; `next` of a page is the `after` of the following one, empty after the last.
  virtual Result<msg::Segments> segments_page(const msg::ListPrefixes& request) = 0;
  virtual Result<msg::SegmentInfo> segment(const SegmentId& id) = 0;
  // The segment whose id begins with these hexadecimal digits, without its plan. kNotFound if there
  // is none; kInvalidArgument names some if there are several.
  virtual Result<msg::SegmentInfo> find_segment(const std::string& id_beginning) = 0;
  // kConflict if its children, unless `recursive`, or a pinned session prevent it.
  virtual Result<msg::Removed> remove_segment(const SegmentId& id, bool recursive) = 0;
  // Reads all of a segment from the store and reports any damage.
  virtual Result<msg::Checked> check_segment(const SegmentId& id) = 0;
  // Trims a segment to the entries of a put at `keep`; kConflict if it stores fewer. Its id
  // and its children stay; putting it again restores the rest. `dry_run`: only reports the effect.
  virtual Result<msg::Trimmed> trim_segment(const SegmentId& id, const Budget& keep,
                                            Durability durability = Durability::kWal,
                                            bool dry_run = false) = 0;
  // Sets how long a segment is worth keeping (msg::Hints); what is absent stays as it is. A later
  // put or lookup with hints replaces it. It is as durable as the segment, at most kWal.
  virtual Result<msg::SegmentInfo> set_retention(const msg::SetRetention& change) = 0;
  // The budgets of the tenant, of a model, or of the puts that name a session.
  virtual Result<msg::Budgets> budgets(std::optional<Digest> model,
                                       const std::string& session = {}) = 0;
  // A recipe that needs a profile can be set only for one model, or for a session of it: kNotFound
  // if the model has no such profile, kInvalidArgument if the change is for all models. A table of
  // layers and heads is for one model, too, or for a session of it.
  virtual Result<msg::Budgets> set_budget(const msg::SetBudget& change) = 0;
  // Compares what the scopes set after two revisions. kNotFound if not all between them are kept.
  virtual Result<msg::BudgetChanges> compare_budgets(const msg::CompareBudgets& which) = 0;
  // The revisions of what was set, the newest first. A rollback makes a new revision, which sets
  // every scope to what it was after an earlier one; `dry_run` of it: only reports what would
  // change.
  virtual Result<msg::BudgetRevisions> budget_revisions(const msg::ListBudgetRevisions& which) = 0;
  virtual Result<msg::BudgetRevision> roll_back_budget(const msg::RollBackBudget& change) = 0;
  // The application of budgets that runs or ran last. In a cluster, the sum over all nodes.
  virtual Result<msg::BudgetApplication> application() = 0;
  // Cancels the application `number`; 0: any that runs.
  virtual Result<msg::BudgetApplication> cancel_application(std::uint64_t number = 0) = 0;
  // A page of what becomes of stored segments (docs/guides/events.md). It returns at once.
  virtual Result<msg::Events> events(const msg::ListEvents& after) = 0;
  // Tenants; kPermissionDenied unless the caller's tenant has the role admin. Those of the
  // configuration are listed too, but only the others can be changed: kConflict. Only the answers
  // of add_tenant() and rotate_token() have the new token.
  virtual Result<msg::IssuedToken> add_tenant(const msg::AddTenant& tenant) = 0;
  virtual Result<std::vector<msg::TenantRow>> tenants() = 0;
  virtual Result<msg::TenantRow> tenant(const std::string& name) = 0;
  // kConflict for a max_disk_bytes below what the tenant stores, unless `below_use`: then segments
  // of it are trimmed and removed.
  virtual Result<msg::TenantRow> change_tenant(const msg::ChangeTenant& change) = 0;
  // Makes a token; the newest before it stays valid. `drop_old`: makes none, and ends all others.
  virtual Result<msg::IssuedToken> rotate_token(const std::string& name, bool drop_old) = 0;
  // kConflict if it has segments, unless `purge`, which removes all that it has stored.
  virtual Result<msg::Removed> remove_tenant(const std::string& name, bool purge) = 0;
  // Backups of all tenants, which the service writes below its backup_dir; kPermissionDenied unless
  // the caller's tenant has the role admin. start_backup() returns once it has begun, kConflict if
  // one runs. backup() is the one that runs or ran last; backups() are complete.
  virtual Result<msg::BackupState> start_backup(const msg::StartBackup& request) = 0;
  virtual Result<msg::BackupState> backup() = 0;
  virtual Result<msg::BackupState> cancel_backup() = 0;
  virtual Result<msg::Backups> backups() = 0;
  // The cluster, as the service knows it; an empty name if it is in none. drain_node() sets
  // whether a node shall give up its shards and own none: kNotFound if there is no such node,
  // kPermissionDenied unless the caller's tenant has the role admin.
  virtual Result<msg::ClusterState> cluster() = 0;
  virtual Result<msg::ClusterState> drain_node(const std::string& node, bool on) = 0;
  virtual Result<msg::Stats> stats() = 0;
  virtual Result<msg::ServerStatus> status() = 0;
};

}  // namespace precis
