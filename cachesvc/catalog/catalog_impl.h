// The classes that implement Catalog, one for each kind of object, and CatalogImpl.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/catalog/catalog_events.h"
#include "cachesvc/catalog/catalog_merges.h"
#include "cachesvc/catalog/catalog_models.h"
#include "cachesvc/catalog/catalog_projections.h"
#include "cachesvc/catalog/catalog_settings.h"
#include "cachesvc/catalog/catalog_shards.h"
#include "cachesvc/catalog/catalog_state.h"
#include "cachesvc/catalog/commit_queue.h"

namespace precis {

class CatalogCommits : public virtual CatalogState {
 public:
  std::shared_ptr<StagedValue> stage(SharedBytes records) override;
  Status commit(const SegmentRow& row, std::span<const Layer> layers,
                Durability durability) override;
  Result<bool> trim(const SegmentRow& from, const SegmentRow& to, std::span<const Layer> layers,
                    Durability durability) override;
  Result<bool> split(const SegmentRow& from, const Part& head, const Part& tail) override;
  Status harden(std::string_view tenant, const SegmentId& id, Durability durability) override;
  std::size_t commits_waiting() const { return commits_waiting_.waiting(); }  // for tests
  std::uint64_t dropped_segments() const override { return dropped_segments_; }

 private:
  // Callers hold changes_ for the functions below.
  Status harden_all();
  Status harden_again(const SegmentNode& present, Durability durability);
  Result<const SegmentNode*> find_parent(const SegmentRow& row) const;
  // Checks one commit for commit() and trim(). Raises its durability to the replaced segment's, and
  // its ancestors' to its own. `promised_bytes`: memory for the batch's other commits.
  Status check_commit(Commit& commit, std::uint64_t promised_bytes = 0);
  // The parts of check_commit() that are the same for a part of a split segment.
  static Status check_row(const Commit& commit, const ModelSpec& model, const SegmentRow* parent);
  // Stores checked commits, all or none. The commits are of different segments, and a parent comes
  // before its children. A commit replaces the stored segment with the same id, if there is one.
  Status store_segments(std::span<Commit* const> commits);
  void store_each(std::span<Commit* const> commits);  // sets each commit's status
  void commit_all(std::span<Commit* const> commits);
  Durability at_least_as(const SegmentNode* present, Durability asked) const;
  void erase_dropped();  // segments that the store dropped, and their descendants
  void erase_dropped(const std::set<SegmentId>& gone);

  CommitQueue commits_waiting_;  // locked before changes_
  std::atomic<std::uint64_t> dropped_segments_ = 0;
};

// Matching, reading and listing of segments.
class CatalogSegments : public virtual CatalogState {
 public:
  std::vector<Link> match(std::string_view tenant, const TokenPath& path,
                          std::uint32_t faithful_ppm) const override;
  std::vector<Row> parents(std::string_view tenant, const TokenPath& path,
                           std::uint32_t faithful_ppm) const override;
  Result<Row> segment(std::string_view tenant, const SegmentId& id) const override;
  Result<Row> served_segment(std::string_view tenant, const SegmentId& id) const override;
  Result<Row> served_now(const Row& row) const override;
  bool is_guest(const SegmentRow& row) const override;
  Result<AnySegment> stored_segment(std::string_view tenant, const SegmentId& id) const override;
  Result<std::vector<Row>> chain(std::string_view tenant, const SegmentId& id) const override;
  Status peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into,
                    bool* was_here) override;
  void keep_layer(const SegmentRow& row, std::uint32_t layer, Bytes records) override;
  Status read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) override;
  Result<msg::SegmentInfo> info(std::string_view tenant, const SegmentId&, bool) const override;
  std::uint32_t lease(std::string_view tenant, std::span<const Link>, std::uint32_t ms) override;
  SegmentLeases& leases() override { return leases_; }
  Result<msg::Segments> segments_page(std::string_view tenant,
                                      const msg::ListPrefixes& request) const override;
  Result<msg::SegmentInfo> find_segment(std::string_view tenant,
                                        std::string_view id_beginning) const override;
  void count_hit(const SegmentId& id) override;
  void hint(std::string_view tenant, const SegmentId& id, const msg::Hints& hints) override;
  Result<msg::SegmentInfo> set_retention(std::string_view, const msg::SetRetention&) override;
  std::vector<StoredUse> stored_uses(std::string_view tenant) const override;

 private:
  // From the local store, else from the shared storage.
  Status read_anywhere(const SegmentRow& row, std::uint32_t layer, MutableBytes into,
                       bool& was_here);
  msg::SegmentInfo describe(const SegmentNode& node, bool with_plan) const;
  static std::vector<Row> chain_of(const SegmentNode* tip);
};

class CatalogRemovals : public virtual CatalogState {
 public:
  Result<msg::Removed> remove(std::string_view tenant, const SegmentId& id, bool recursive,
                              std::vector<SegmentId>* gone, msg::KvEvent::Cause cause) override;
  bool quarantine(const SegmentRow& row) override;

 private:
  // Callers hold changes_ for the functions below.
  std::vector<SegmentId> last_of(std::vector<SegmentId>& left) const;
  Status remove_some(std::string_view tenant, const std::vector<SegmentId>& some,
                     msg::KvEvent::Cause cause, msg::Removed& removed);
  Status check_unpinned(std::string_view tenant, const SegmentId& id,
                        const std::vector<SegmentId>& all) const;
};

class CatalogSessions : public virtual CatalogState {
 public:
  Result<msg::SessionRow> open_session(std::string_view tenant, const msg::OpenSession&,
                                       std::optional<std::uint32_t> shard) override;
  Status renew_session(std::string_view tenant, std::string_view name) override;
  Result<msg::SessionRow> advance_session(std::string_view tenant,
                                          const msg::AdvanceSession&) override;
  Result<msg::SessionRow> pin_session(std::string_view tenant, const msg::PinSession&) override;
  Result<msg::SessionRow> fork_session(std::string_view tenant, const msg::ForkSession&) override;
  Status remove_session(std::string_view tenant, std::string_view name) override;
  Result<msg::SessionRow> session(std::string_view tenant, std::string_view name) const override;
  Result<SessionTurns> session_turns(std::string_view tenant, std::string_view name) const override;
  Result<msg::Sessions> sessions_page(std::string_view, const msg::ListSessions&) const override;
  Status end_former_budget(std::string_view tenant, const std::string& name) override;
  bool has_former_budget(std::string_view tenant, const std::string& name) const override;

 private:
  // Callers hold changes_ for the functions below.
  Status save_session(std::string_view tenant, const msg::SessionRow& row);
  Status check_session_room(std::string_view tenant) const;
};

class CatalogBudgets : public virtual CatalogState {
 public:
  msg::Budgets budgets(std::string_view tenant, const msg::BudgetScope& scope,
                       const BudgetDefaults& configured) const override;
  std::vector<std::string> sessions_with_budgets(std::string_view tenant) const override;
  Result<msg::BudgetRevision> set_budget(std::string_view tenant, const msg::SetBudget&) override;
  Result<msg::BudgetRevision> roll_back_budget(std::string_view tenant,
                                               const msg::RollBackBudget&) override;
  Result<std::size_t> remove_budgets(std::string_view tenant) override;
  msg::BudgetRevisions budget_revisions(std::string_view tenant,
                                        const msg::ListBudgetRevisions&) const override;
  Result<msg::BudgetChanges> compare_budgets(std::string_view tenant,
                                             const msg::CompareBudgets&) const override;

 private:
  BudgetTable::IsSession is_session_of(std::string_view tenant) const;
  Status check_scope(std::string_view tenant, const msg::BudgetScope& scope) const;
  Status check_change(std::string_view tenant, const msg::BudgetChange& change) const;
  // Returns the rows of a planned revision.
  Result<std::vector<SettingRow>> rows_of(std::string_view tenant,
                                          const BudgetTable::Planned& planned) const;
};

class CatalogTenants : public virtual CatalogState {
 public:
  std::vector<StoredTenant> stored_tenants() const override;
  Status change_tenant(const std::string& name, const TenantChange& change) override;
};

// The whole catalog. Opening it loads every table.
class CatalogImpl final : public CatalogModels,
                          public CatalogProjections,
                          public CatalogProfiles,
                          public CatalogCommits,
                          public CatalogMerges,
                          public CatalogSegments,
                          public CatalogRemovals,
                          public CatalogEvents,
                          public CatalogSessions,
                          public CatalogShards,
                          public CatalogBudgets,
                          public CatalogTenants,
                          public CatalogSettings {
 public:
  CatalogImpl(Store& store, const Clock& clock, std::uint64_t kept_bytes_max, bool in_shards);
  ~CatalogImpl() override;
  Status load();
  Totals totals(std::string_view tenant) const override;
  Totals totals() const override;

 private:
  Status load_models();  // each of these loads one table
  Status load_projections();
  Status load_profiles();
  Status load_segments();
  Status load_sessions();
  Status load_budgets();
  Status load_marks();
  Status check_format();
  template <typename Stored>
  Status load_rows(Table table, Result<Stored> (*decode)(Bytes),
                   std::string (*key_of)(const Stored&), const std::function<void(Stored)>& take);
  void save_all_hits();
};

}  // namespace precis
