// The catalog: its parts in memory (segment tree with prefix index, sessions, budgets, models) and
// the store below. Private to this folder; users include catalog.h.
//
// Two locks. A change holds `changes_` throughout, its store write included, so changes run one
// after another and a checked condition stays true. Commits at kFsync that wait for `changes_`
// together become one change (commit_queue.h). Readers of the parts in memory share `state_`; a
// change holds it exclusively only to apply what the store has acknowledged. A holder of `changes_`
// may read without `state_`: no other thread may write.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/catalog/change.h"
#include "cachesvc/catalog/commit_queue.h"
#include "cachesvc/catalog/segment_tree.h"
#include "cachesvc/catalog/sessions.h"

namespace precis {

class CatalogImpl final : public Catalog {
 public:
  CatalogImpl(Store& store, const Clock& clock, std::uint64_t kept_bytes_max);
  ~CatalogImpl() override;
  Status load();

  // ---- catalog_models.cc (models_page: catalog_lists.cc)
  Result<msg::ModelRow> register_model(std::string_view tenant, const ModelSpec& model) override;
  Result<ModelSpec> model(std::string_view tenant, const Digest& fingerprint) const override;
  Result<msg::Models> models_page(std::string_view tenant,
                                  const msg::ListModels& request) const override;
  Status add_projection(const StoredProjection& row, Bytes weights, Bytes grams) override;
  Result<Projection> projection(std::string_view tenant, const Digest& model,
                                std::uint32_t layer) const override;
  Status read_projection(const StoredProjection& row, ProjectionPart part,
                         MutableBytes into) override;

  // ---- catalog_profiles.cc
  Result<msg::ProfileRow> add_profile(std::string_view tenant, std::string_view json) override;
  std::vector<msg::ProfileRow> profiles(std::string_view tenant,
                                        std::optional<Digest> model) const override;
  Result<msg::ProfileRow> profile(std::string_view tenant, const Digest& model,
                                  std::string_view name) override;
  Status remove_profile(std::string_view tenant, const Digest& model,
                        std::string_view name) override;
  Result<FoundProfile> find_profile(std::string_view tenant, const Digest& model,
                                    const Recipe& recipe) const override;

  // ---- catalog.cc
  std::uint64_t dropped_segments() const override { return dropped_segments_; }
  Totals totals(std::string_view tenant) const override;
  Totals totals() const override;

  // ---- catalog_commits.cc
  std::shared_ptr<StagedValue> stage(SharedBytes records) override;
  Status commit(const SegmentRow& row, std::span<const Layer> layers,
                Durability durability) override;
  Result<bool> trim(const SegmentRow& from, const SegmentRow& to, std::span<const Layer> layers,
                    Durability durability) override;
  Status harden(std::string_view tenant, const SegmentId& id, Durability durability) override;
  // The number of commits that wait for the current change, for tests.
  std::size_t commits_waiting() const { return commits_waiting_.waiting(); }

  // ---- catalog_segments.cc
  std::vector<Link> match(std::string_view tenant, const TokenPath& path,
                          std::uint32_t faithful_ppm) const override;
  std::vector<Row> parents(std::string_view tenant, const TokenPath& path,
                           std::uint32_t faithful_ppm) const override;
  Result<Row> segment(std::string_view tenant, const SegmentId& id) const override;
  Result<AnySegment> stored_segment(std::string_view tenant, const SegmentId& id) const override;
  Result<std::vector<Row>> chain(std::string_view tenant, const SegmentId& id) const override;
  Status peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) override;
  Status read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) override;
  Result<msg::Removed> remove(std::string_view tenant, const SegmentId& id, bool recursive,
                              std::vector<SegmentId>* gone) override;
  Result<msg::SegmentInfo> info(std::string_view tenant, const SegmentId& id,
                                bool with_plan) const override;
  std::uint32_t lease(std::string_view tenant, std::span<const Link>, std::uint32_t ms) override;
  SegmentLeases& leases() override { return leases_; }
  // ---- catalog_lists.cc (count_hit and quarantine: catalog_segments.cc)
  Result<msg::Segments> segments_page(std::string_view tenant,
                                      const msg::ListPrefixes& request) const override;
  Result<msg::SegmentInfo> find_segment(std::string_view tenant,
                                        std::string_view id_beginning) const override;
  void count_hit(const SegmentId& id) override;
  bool quarantine(const SegmentRow& row) override;

  // ---- catalog_sessions.cc (sessions_page: catalog_lists.cc)
  Result<msg::SessionRow> open_session(std::string_view tenant, const msg::OpenSession&) override;
  Result<msg::SessionRow> advance_session(std::string_view tenant,
                                          const msg::AdvanceSession&) override;
  Result<msg::SessionRow> pin_session(std::string_view tenant, const msg::PinSession&) override;
  Result<msg::SessionRow> fork_session(std::string_view tenant, const msg::ForkSession&) override;
  Status remove_session(std::string_view tenant, std::string_view name) override;
  Result<msg::SessionRow> session(std::string_view tenant, std::string_view name) const override;
  Result<msg::Sessions> sessions_page(std::string_view tenant,
                                      const msg::ListSessions& request) const override;
  msg::Budgets budgets(std::string_view tenant, const msg::BudgetScope& scope,
                       const BudgetDefaults& configured) const override;
  Status set_budget(std::string_view tenant, const msg::SetBudget&) override;

 private:
  struct KnownProfile {
    std::shared_ptr<const Profile> profile;
    Digest digest;
    std::uint64_t added_unix_ms = 0;
  };
  struct Model {
    ModelSpec spec;
    std::uint64_t segments = 0;
    std::map<std::uint32_t, Projection> projections;            // by layer
    std::map<std::string, KnownProfile, std::less<>> profiles;  // by name
  };
  using ModelKey = std::pair<std::string, Digest>;  // tenant, fingerprint
  using Models = std::map<ModelKey, Model>;

  // Each loads one table; load() calls them.
  Status load_models();
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

  // Callers hold changes_. Writes the change, plus pending hits, expiries and quarantine marks.
  Status write(Change change, Durability durability);
  void add_hits(Change& change, std::vector<SegmentId>& saved);
  void save_hits_later(const SegmentNode& node, const SegmentId& id);
  void save_all_hits();
  Status save_session(std::string_view tenant, const msg::SessionRow& row);
  void forget_dropped();  // segments that the store dropped, and their descendants
  void erase_dropped(const std::set<SegmentId>& gone);

  // Callers hold changes_ or state_.
  const ModelSpec* find_model(std::string_view tenant, const Digest& fingerprint) const;
  Result<const Model*> known_model(std::string_view tenant, const Digest& fingerprint) const;
  // Returns the range of the tenant's models, ordered by fingerprint.
  std::pair<Models::const_iterator, Models::const_iterator> models_of(
      std::string_view tenant) const;
  // Callers hold changes_. Refuses a recipe that needs a profile and has none.
  Status check_has_profile(std::string_view tenant, const msg::SetBudget& request) const;
  static msg::ProfileRow describe(const KnownProfile& known);
  Status check_profile_room(std::string_view tenant, const Profile& profile) const;
  Result<std::optional<msg::ProfileRow>> profile_with_text(std::string_view tenant,
                                                           const Digest& model,
                                                           std::string_view name);
  // As find_profile().
  static Result<FoundProfile> fitting_profile(const Model& holder, const Digest& model,
                                              const Recipe& recipe);
  Result<const SegmentNode*> find_segment(std::string_view tenant, const SegmentId& id) const;
  Result<const msg::SessionRow*> find_session(std::string_view tenant, std::string_view name) const;
  msg::SegmentInfo describe(const SegmentNode& node, bool with_plan) const;
  static msg::ModelRow describe(const Digest& fingerprint, const Model& model);
  static std::vector<Row> chain_of(const SegmentNode* tip);
  // Returns whether a crash can lose the segment, because it was committed at kMemory.
  bool is_volatile(const SegmentNode& node) const;
  bool chain_is_volatile(const SegmentNode* tip) const;
  // Returns whether the store has, or will have, a quarantine mark for the segment.
  bool is_marked(const SegmentId& id) const;

  // Callers hold changes_.
  Status harden();
  Status check_session_room(std::string_view tenant) const;
  Status harden_again(const SegmentNode& present, Durability durability);
  Result<const SegmentNode*> find_parent(const SegmentRow& row) const;
  // Checks one commit for commit() and trim(). Raises its durability to the replaced segment's, and
  // its ancestors' to its own. `promised_bytes`: memory for the batch's other commits.
  Status check_commit(Commit& commit, std::uint64_t promised_bytes = 0);
  // Stores checked commits, all or none. They are of different segments, none the parent of
  // another. Each replaces the stored segment with its id, if there is one.
  Status store_segments(std::span<Commit* const> commits);
  void store_each(std::span<Commit* const> commits);  // sets each commit's status
  void commit_all(std::span<Commit* const> commits);
  Durability at_least_as(const SegmentNode* present, Durability asked) const;
  std::vector<SegmentId> last_of(std::vector<SegmentId>& left) const;
  Status remove_some(std::string_view tenant, const std::vector<SegmentId>& some,
                     msg::Removed& removed);
  Status check_unpinned(std::string_view tenant, const SegmentId& id,
                        const std::vector<SegmentId>& all) const;

  Store& store_;
  const Clock& clock_;
  const std::uint64_t kept_bytes_max_;  // of memory, for segments

  SegmentLeases leases_;         // locked after the others
  CommitQueue commits_waiting_;  // locked before changes_
  std::mutex changes_;
  // Written with changes_ held.
  std::uint64_t commits_ = 0;          // commits of this process
  std::uint64_t hardened_ = 0;         // commits up to this one survive a crash
  std::set<SegmentId> marks_;          // quarantine marks in the store
  std::set<SegmentId> marks_to_save_;  // marks that the store refused
  std::atomic<std::uint64_t> dropped_segments_ = 0;

  mutable std::shared_mutex state_;
  // Written with both locks held.
  SegmentTree tree_;
  Sessions sessions_;
  BudgetTable budgets_;
  Models models_;
  std::set<std::pair<Table, std::string>> bad_rows_;  // rows that failed their check

  mutable std::mutex hits_mutex_;
  std::deque<SegmentId> unsaved_hits_;  // guarded by hits_mutex_
};

}  // namespace precis
